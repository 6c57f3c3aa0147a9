"""What differs between the bad and the good answers of an incident."""
