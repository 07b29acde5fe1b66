"""What a run does where no plugin says otherwise: plugins like any other, behind all the rest."""
