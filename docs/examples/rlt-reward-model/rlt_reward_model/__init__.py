"""A reward model for rlt: a judge of two answers."""
