"""What a function or command of the user gets and gives: ranks that meet, states, numbers."""
