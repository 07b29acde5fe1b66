"""rlt: rows go in, Tinker calls come out, and everything in between is a hook."""
