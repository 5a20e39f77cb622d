//! One test for each thing that the machine decides.
