//! A night in virtual time.
