"""What can be set with `-o`, and the plugin's own defaults of a run's settings."""

from __future__ import annotations

import rlt

DEFAULTS = {"group_size": 8, "temperature": 1.0, "lr": 4e-5}

OPTIONS: dict[str, rlt.JSON] = {
    "loss": {
        "enum": ["importance_sampling", "ppo", "cispo"],
        "default": "importance_sampling",
        "description": "the service's policy loss",
    },
    "clip_low": {
        "type": "number",
        "minimum": 0,
        "maximum": 1,
        "default": 0.8,
        "description": "the least ratio of ppo and cispo",
    },
    "clip_high": {
        "type": "number",
        "minimum": 1,
        "default": 1.2,
        "description": "the greatest ratio of ppo and cispo",
    },
    "scale": {
        "enum": ["none", "std"],
        "default": "none",
        "description": "std divides advantages by their group's standard deviation",
    },
    "reduction": {
        "enum": ["token-mean", "sequence-mean", "sum"],
        "default": "token-mean",
        "description": "how the tokens of a step are averaged in the gradient",
    },
    "kl": {
        "type": "number",
        "minimum": 0,
        "default": 0.0,
        "description": "the penalty for straying from the weights before step 0",
    },
    "max_turns": {
        "type": "integer",
        "minimum": 1,
        "default": 8,
        "description": "the most turns of an episode",
    },
    "deadline": {
        "type": "number",
        "minimum": 0,
        "default": 600.0,
        "description": "seconds for a rollout, its scoring included; 0 is no deadline",
    },
    "on_score_error": {
        "enum": ["fail", "drop"],
        "default": "fail",
        "description": "when a verifier raises: end the run, or leave the sample out",
    },
    "verifier": {
        "enum": ["auto", "answer", "tests", "lean", "none"],
        "default": "auto",
        "description": "what scores a row; auto goes by what its metadata holds",
    },
    "allow_code_execution": {
        "type": "boolean",
        "default": False,
        "description": "true runs what the model wrote, in a sandbox (tests and lean)",
    },
    "test_seconds": {
        "type": "number",
        "exclusiveMinimum": 0,
        "default": 10.0,
        "description": "the time that one run of the model's code may take",
    },
    "test_memory_mb": {
        "type": "integer",
        "minimum": 64,
        "default": 1024,
        "description": "the memory that each of its processes may take",
    },
}
