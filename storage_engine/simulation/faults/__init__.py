"""What goes wrong: schedules, scripts, and those who carry them out."""
