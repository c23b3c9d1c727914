"""Fill a database with what released claims and changes leave behind in years, and measure it."""
