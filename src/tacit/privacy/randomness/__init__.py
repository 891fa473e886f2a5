"""Secret random numbers: keys, cipher, sampling and exactly rounded noise."""
