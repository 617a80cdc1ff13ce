//! What the fuzz targets check, for any bytes. `fuzz/` runs these with new inputs; a test runs them with the kept ones.

pub mod fold;
pub mod translate;
pub mod wire;

/// A check of any bytes, which panics if it fails.
pub type Check = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Check); 3] =
    [("wire", wire::check), ("fold", fold::check), ("translate", translate::check)];
