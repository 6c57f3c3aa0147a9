"""What the judged metrics share: prompts, answers, claims."""
