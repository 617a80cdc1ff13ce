//! Parses lists of names on the command line.

/// The error for an unknown name in a list.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} '{name}': there are {}, none", .known.join(", "))]
pub(crate) struct UnknownName {
    kind: &'static str,
    name: String,
    known: Vec<&'static str>,
}

/// Parses a list of names that are separated by commas; `none` is an empty list. `kind` is for the error.
pub(super) fn parse<T: Copy>(
    kind: &'static str,
    list: &str,
    all: &[(&'static str, T)],
) -> Result<Vec<T>, UnknownName> {
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "none");
    let values = names.map(|name| {
        let found = all.iter().find(|(known, _)| *known == name);
        let unknown = || UnknownName {
            kind,
            name: name.to_owned(),
            known: all.iter().map(|(known, _)| *known).collect(),
        };
        found.map(|(_, value)| *value).ok_or_else(unknown)
    });
    values.collect()
}
