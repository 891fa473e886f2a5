"""Methods as their papers publish them, where that is NOT PRIVATE: to be measured and attacked."""
