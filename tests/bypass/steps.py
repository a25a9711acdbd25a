def play(run): pass
