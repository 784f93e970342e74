"""What all routes share: bodies, answers, authorization, pages."""
