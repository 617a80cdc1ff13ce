//! What the fuzz targets check, for any bytes. `fuzz/` runs these with new inputs; a test runs them with the kept ones.

pub mod fold;
pub mod translate;
pub mod wire;

/// The targets by name.
pub const TARGETS: [(&str, fn(&[u8])); 3] =
    [("wire", wire::check), ("fold", fold::check), ("translate", translate::check)];
