//! What parlor is tested with. Nothing of this is shipped.

pub mod simulation;
