"""What a function or command of the user's gets beside its parameters: ranks that meet."""
