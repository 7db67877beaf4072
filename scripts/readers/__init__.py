"""Coverage-guided fuzzing of readers of files that others can have written."""
