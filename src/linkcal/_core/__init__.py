"""What every part of the library builds on."""
