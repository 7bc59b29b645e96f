"""What people read: tables, and later plots and pages."""
