"""What all routes share: bodies, answers, who may ask, pages."""
