//! Paths of this machine and of an agent that sees the same files elsewhere, such as in a container.
//!
//! Only members that the protocol defines as paths or `file://` addresses are mapped. Texts, metadata and the raw input and output
//! of tools are not.

use std::borrow::Cow;

use parlor_json::{ArrayWriter, Json, JsonRef, Members, Object, ObjectWriter, Type};

/// Maps directories of this machine to directories of an agent. The longest prefix counts; a path outside of the map is unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PathMap {
    /// Directories of this machine and of the agent, without a slash at the end.
    pairs: Vec<(String, String)>,
}

/// Why directories cannot be mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadPathMap {
    /// The path is not absolute, or has `.` or `..` in it.
    NotAbsolute(String),
    /// Two directories of this machine are the same directory of the agent.
    Ambiguous(String),
}

impl core::fmt::Display for BadPathMap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotAbsolute(path) => write!(f, "'{path}' is not an absolute path without '.' and '..'"),
            Self::Ambiguous(path) => write!(f, "two directories are mapped from or to '{path}'"),
        }
    }
}

impl core::error::Error for BadPathMap {}

#[derive(Clone, Copy)]
enum Direction {
    ToAgent,
    FromAgent,
}

/// Members that are paths.
const PATHS: [&str; 3] = ["cwd", "path", "oldPath"];

/// Members that are lists of paths.
const PATH_LISTS: [&str; 1] = ["additionalDirectories"];

/// Members that are addresses.
const ADDRESSES: [&str; 1] = ["uri"];

/// Members in which there may be paths.
const NESTED: [&str; 13] = [
    "params",
    "result",
    "update",
    "toolCall",
    "subject",
    "content",
    "locations",
    "changes",
    "resource",
    "prompt",
    "sessions",
    "session",
    "plan",
];

/// How deep paths are looked for. The protocol's own messages have at most 8 levels.
const MAX_DEPTH: usize = 16;

impl PathMap {
    /// Maps pairs of directories, first that of this machine. Both are absolute.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, BadPathMap> {
        let mut map = Self::default();
        for (here, there) in pairs {
            let (here, there) = (directory(&here)?, directory(&there)?);
            for (others_here, others_there) in &map.pairs {
                let is_same = if *others_here == here { &here } else { &there };
                if *others_here == here || *others_there == there {
                    return Err(BadPathMap::Ambiguous(absolute(is_same, "")));
                }
            }
            map.pairs.push((here, there));
        }
        Ok(map)
    }

    /// Whether it maps nothing.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The agent's path for a path of this machine.
    pub fn path_to_agent<'a>(&self, path: &'a str) -> Cow<'a, str> {
        self.path(path, Direction::ToAgent).map_or(Cow::Borrowed(path), Cow::Owned)
    }

    /// The path of this machine for a path of the agent.
    pub fn path_from_agent<'a>(&self, path: &'a str) -> Cow<'a, str> {
        self.path(path, Direction::FromAgent).map_or(Cow::Borrowed(path), Cow::Owned)
    }

    /// The params of a request or a notification for the agent.
    pub fn to_agent<'a>(&self, params: &'a Object) -> Cow<'a, Object> {
        let mapped =
            (!self.is_empty()).then(|| self.object(params.to_json().raw(), Direction::ToAgent, 0)).flatten();
        mapped.and_then(|mapped| mapped.to_object()).map_or(Cow::Borrowed(params), Cow::Owned)
    }

    /// The result of a request of the agent.
    pub fn result_to_agent(&self, result: &Json) -> Option<Json> {
        if self.is_empty() { None } else { self.nested(result.raw(), Direction::ToAgent, 0) }
    }

    /// A line of the agent, with paths of this machine. A line without mapped paths is unchanged.
    pub fn line_from_agent<'a>(&self, line: &'a str) -> Cow<'a, str> {
        if self.is_empty() {
            return Cow::Borrowed(line);
        }
        let mapped =
            JsonRef::parse(line).ok().and_then(|message| self.nested(message, Direction::FromAgent, 0));
        mapped.map_or(Cow::Borrowed(line), |mapped| Cow::Owned(mapped.as_str().to_owned()))
    }

    /// The value with other paths; `None` if it has none.
    fn nested(&self, value: JsonRef<'_>, direction: Direction, depth: usize) -> Option<Json> {
        if depth >= MAX_DEPTH {
            return None;
        }
        match value.type_of() {
            Type::Object => self.object(value, direction, depth),
            Type::Array => each(value, |element| self.nested(element, direction, depth + 1)),
            Type::Null | Type::Bool | Type::Number | Type::String => None,
        }
    }

    fn object(&self, object: JsonRef<'_>, direction: Direction, depth: usize) -> Option<Json> {
        let members = Members::of(object).ok()?;
        let mut is_changed = false;
        let mut mapped = ObjectWriter::with_capacity(object.as_str().len());
        for (name, value) in members.raw() {
            let path = |value: JsonRef<'_>| self.path(&value.to_text()?, direction).map(Json::from);
            let other = match name.to_text().as_deref() {
                Some(name) if PATHS.contains(&name) => path(*value),
                Some(name) if PATH_LISTS.contains(&name) => each(*value, path),
                Some(name) if ADDRESSES.contains(&name) => {
                    value.to_text().and_then(|address| self.address(&address, direction)).map(Json::from)
                }
                // The values of a form that a person filled in are content without a type.
                Some("content") if value.type_of() == Type::Object && !has_type(*value) => None,
                Some(name) if NESTED.contains(&name) => self.nested(*value, direction, depth + 1),
                _ => None,
            };
            is_changed |= other.is_some();
            mapped = mapped.member(name.as_str(), other.as_ref().map_or(value.as_str(), Json::as_str));
        }
        is_changed.then(|| mapped.into_json())
    }

    /// The other side's path; `None` for a path outside of the map.
    fn path(&self, path: &str, direction: Direction) -> Option<String> {
        let found = self.sides(direction).filter_map(|(from, to)| Some((from.len(), to, below(path, from)?)));
        let (_, to, rest) = found.max_by_key(|(length, ..)| *length)?;
        Some(absolute(to, rest))
    }

    /// The other side's `file://` address; `None` for any other address and for a path outside of the map.
    fn address(&self, address: &str, direction: Direction) -> Option<String> {
        let (scheme, path) = address.split_at_checked("file://".len())?;
        if !scheme.eq_ignore_ascii_case("file://") {
            return None;
        }
        let start = path.find('/')?;
        let (host, path) = path.split_at(start);
        if !host.is_empty() && !host.eq_ignore_ascii_case("localhost") {
            return None;
        }
        let end = path.find(['?', '#']).unwrap_or(path.len());
        let (path, suffix) = path.split_at(end);
        // The rest after the prefix stays as it is written.
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let mut found = ends.filter_map(|end| {
            let decoded = percent_decoded(&path[..end])?;
            let (_, to) = self.sides(direction).find(|(from, _)| *from == decoded)?;
            Some((to, &path[end..]))
        });
        let (to, rest) = found.next_back()?;
        let rest = if rest == "/" && !to.is_empty() && path == "/" { "" } else { rest };
        let to = if to.is_empty() && rest.is_empty() { "/".to_owned() } else { percent_encoded(to) };
        Some(format!("{scheme}{host}{to}{rest}{suffix}"))
    }

    /// The directories to map from and to.
    fn sides(&self, direction: Direction) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(move |(here, there)| match direction {
            Direction::ToAgent => (here.as_str(), there.as_str()),
            Direction::FromAgent => (there.as_str(), here.as_str()),
        })
    }
}

/// A directory without a slash at the end; the root is empty.
fn directory(path: &str) -> Result<String, BadPathMap> {
    let is_plain = |path: &str| path.split('/').all(|name| name != "." && name != "..");
    if !path.starts_with('/') || !is_plain(path) || path.contains('\0') {
        return Err(BadPathMap::NotAbsolute(path.to_owned()));
    }
    Ok(path.trim_end_matches('/').to_owned())
}

/// The rest of a path below a directory, with its slash; `None` if it is elsewhere.
fn below<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(directory)?;
    match rest {
        "/" if directory.is_empty() => Some(""),
        _ if rest.starts_with('/') || (rest.is_empty() && !directory.is_empty()) => Some(rest),
        _ => None,
    }
}

fn absolute(directory: &str, rest: &str) -> String {
    if directory.is_empty() && rest.is_empty() { "/".to_owned() } else { format!("{directory}{rest}") }
}

fn has_type(object: JsonRef<'_>) -> bool {
    Members::of(object).is_ok_and(|members| members.get("type").is_some())
}

/// The array with other elements; `None` if none is replaced.
fn each(array: JsonRef<'_>, replace: impl Fn(JsonRef<'_>) -> Option<Json>) -> Option<Json> {
    let mut is_changed = false;
    let mut mapped = ArrayWriter::with_capacity(array.as_str().len());
    for element in array.elements()? {
        let other = replace(element);
        is_changed |= other.is_some();
        mapped.push(other.as_ref().map_or(element.as_str(), Json::as_str));
    }
    is_changed.then(|| mapped.into_json())
}

/// A path as it is in an address.
fn percent_encoded(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~!$&'()*+,;=:@".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            for digit in [byte >> 4, byte & 15] {
                encoded.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
            }
        }
    }
    encoded
}

/// The path in an address; `None` if it is not text.
fn percent_decoded(path: &str) -> Option<String> {
    let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut decoded = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let (high, low) = (hex(bytes.next()?)?, hex(bytes.next()?)?);
            decoded.push(high << 4 | low);
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> PathMap {
        PathMap::new(pairs.iter().map(|(here, there)| ((*here).to_owned(), (*there).to_owned()))).unwrap()
    }

    #[test]
    fn the_longest_directory_counts_and_other_paths_are_unchanged() {
        let map =
            map(&[("/home/ada/src", "/work"), ("/home/ada/src/big/", "/data/big"), ("/opt", "/usr/opt")]);
        for (here, there) in [
            ("/home/ada/src", "/work"),
            ("/home/ada/src/", "/work/"),
            ("/home/ada/src/a b/é", "/work/a b/é"),
            ("/home/ada/src/bigger", "/work/bigger"),
            ("/home/ada/src/big", "/data/big"),
            ("/home/ada/src/big/x", "/data/big/x"),
            ("/home/ada/srcs", "/home/ada/srcs"),
            ("/home/ada", "/home/ada"),
            ("src/a", "src/a"),
            ("", ""),
            ("/", "/"),
        ] {
            assert_eq!(map.path_to_agent(here), there);
            assert_eq!(map.path_from_agent(there), here);
        }
    }

    #[test]
    fn the_root_can_be_mapped() {
        let jail = map(&[("/srv/jail", "/")]);
        for (here, there) in [("/srv/jail", "/"), ("/srv/jail/etc", "/etc")] {
            assert_eq!((jail.path_to_agent(here), jail.path_from_agent(there)), (there.into(), here.into()));
        }
        let mounted = map(&[("/", "/host")]);
        for (here, there) in [("/", "/host"), ("/etc", "/host/etc")] {
            assert_eq!(
                (mounted.path_to_agent(here), mounted.path_from_agent(there)),
                (there.into(), here.into())
            );
        }
    }

    #[test]
    fn addresses_of_files_are_mapped_as_they_are_written() {
        let map = map(&[("/home/ada/my src", "/work"), ("/", "/host")]);
        for (here, there) in [
            ("file:///home/ada/my%20src/a%20b.rs#L3", "file:///work/a%20b.rs#L3"),
            ("file://localhost/home/ada/my%20src?x=/home", "file://localhost/work?x=/home"),
            ("FILE:///home/ada/my%20src/%E9", "FILE:///work/%E9"),
            ("file:///etc/hosts", "file:///host/etc/hosts"),
            ("file:///", "file:///host"),
            ("file://server/home/ada/my%20src", "file://server/home/ada/my%20src"),
            ("https://host/home/ada/my%20src", "https://host/home/ada/my%20src"),
            ("file:", "file:"),
            ("\u{e9}", "\u{e9}"),
        ] {
            let mapped = |address: &str, direction| {
                map.address(address, direction).unwrap_or_else(|| address.to_owned())
            };
            assert_eq!(mapped(here, Direction::ToAgent), there);
            assert_eq!(mapped(there, Direction::FromAgent), here);
        }
        // Other spellings of the same directory.
        let spelled = map.address("file:///home/%61da/my%20src/x", Direction::ToAgent);
        assert_eq!(spelled.as_deref(), Some("file:///work/x"));
    }

    #[test]
    fn ambiguous_and_relative_directories_are_rejected() {
        let new = |pairs: &[(&str, &str)]| {
            PathMap::new(pairs.iter().map(|(here, there)| ((*here).to_owned(), (*there).to_owned())))
                .map_err(|error| error.to_string())
        };
        for (pairs, part) in [
            (&[("src", "/work")][..], "'src'"),
            (&[("/src", "work")], "'work'"),
            (&[("/src/../etc", "/work")], "'/src/../etc'"),
            (&[("/a", "/work"), ("/b", "/work/")], "'/work'"),
            (&[("/a", "/x"), ("/a/", "/y")], "'/a'"),
            (&[("/a", "/"), ("/b", "/")], "'/'"),
        ] {
            let error = new(pairs).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn lines_without_mapped_paths_are_the_same_bytes() {
        let map = map(&[("/home/ada/src", "/work")]);
        for line in [
            r#"{ "method":"session/update", "params": {"update":{"content":{"type":"text","text":"/work/a"}}}}"#,
            r#"{"method":"session/update","params":{"update":{"rawInput":{"path":"/work/a"},"_meta":{"path":"/work"}}}}"#,
            r#"{"id":1,"result":{"action":"accept","content":{"path":"/work/a"}}}"#,
            r#"{"id":1,"error":{"code":1,"message":"/work","data":{"path":"/work"}}}"#,
            r#"{"params":{"path":7,"uri":null,"cwd":{},"additionalDirectories":"/work"}}"#,
            "not json",
            "",
        ] {
            assert_eq!(map.line_from_agent(line), line);
        }
    }

    #[test]
    fn every_path_of_the_protocol_is_mapped() {
        let map = map(&[("/home/ada/src", "/work")]);
        for (there, here) in [
            (
                r#"{"method":"session/update","params":{"sessionId":"/work","update":{"locations":[{"path":"/work/a","line":1}],"content":[{"type":"diff","path":"/work/a","oldText":"/work"}]}}}"#,
                r#"{"method":"session/update","params":{"sessionId":"/work","update":{"locations":[{"path":"/home/ada/src/a","line":1}],"content":[{"type":"diff","path":"/home/ada/src/a","oldText":"/work"}]}}}"#,
            ),
            (
                r#"{"params":{"update":{"content":[{"type":"diff","changes":[{"operation":"move","oldPath":"/work/a","path":"/work/b"}]}],"cwd":"/work"}}}"#,
                r#"{"params":{"update":{"content":[{"type":"diff","changes":[{"operation":"move","oldPath":"/home/ada/src/a","path":"/home/ada/src/b"}]}],"cwd":"/home/ada/src"}}}"#,
            ),
            (
                r#"{"params":{"update":{"content":{"type":"resource_link","uri":"file:///work/a"}}}}"#,
                r#"{"params":{"update":{"content":{"type":"resource_link","uri":"file:///home/ada/src/a"}}}}"#,
            ),
            (
                r#"{"params":{"toolCall":{"content":[{"type":"content","content":{"type":"resource","resource":{"uri":"file:///work/a","text":"/work"}}}]}}}"#,
                r#"{"params":{"toolCall":{"content":[{"type":"content","content":{"type":"resource","resource":{"uri":"file:///home/ada/src/a","text":"/work"}}}]}}}"#,
            ),
            (
                r#"{"params":{"subject":{"type":"command","cwd":"/work/x"}}}"#,
                r#"{"params":{"subject":{"type":"command","cwd":"/home/ada/src/x"}}}"#,
            ),
            (
                r#"{"id":1,"method":"fs/read_text_file","params":{"path":"\/work\/a"}}"#,
                r#"{"id":1,"method":"fs/read_text_file","params":{"path":"/home/ada/src/a"}}"#,
            ),
            (
                r#"[{"id":1,"method":"terminal/create","params":{"command":"ls","cwd":"/work"}}]"#,
                r#"[{"id":1,"method":"terminal/create","params":{"command":"ls","cwd":"/home/ada/src"}}]"#,
            ),
            (
                r#"{"id":1,"result":{"sessions":[{"cwd":"/work","additionalDirectories":["/work/b","/tmp"]}]}}"#,
                r#"{"id":1,"result":{"sessions":[{"cwd":"/home/ada/src","additionalDirectories":["/home/ada/src/b","/tmp"]}]}}"#,
            ),
        ] {
            assert_eq!(map.line_from_agent(there), here);
            let message = JsonRef::parse(here).unwrap();
            let back = map.nested(message, Direction::ToAgent, 0).unwrap();
            assert_eq!(back.as_str(), there.replace("\\/", "/"));
        }
    }

    #[test]
    fn params_for_the_agent_are_mapped() {
        let map = map(&[("/home/ada/src", "/work")]);
        let params = r#"{"cwd":"/home/ada/src/x","additionalDirectories":["/home/ada/src"],"mcpServers":[{"command":"/home/ada/src/m"}],"prompt":[{"type":"resource_link","uri":"file:///home/ada/src/a"}]}"#;
        let params = Json::parse(params).unwrap().to_object().unwrap();
        let expected = r#"{"cwd":"/work/x","additionalDirectories":["/work"],"mcpServers":[{"command":"/home/ada/src/m"}],"prompt":[{"type":"resource_link","uri":"file:///work/a"}]}"#;
        assert_eq!(map.to_agent(&params).text(), expected);
        assert_eq!(PathMap::default().to_agent(&params).text(), params.text());
    }

    #[test]
    fn deep_nesting_is_not_followed() {
        let depth = 100_000;
        let line = r#"{"content":["#.repeat(depth) + &"]}".repeat(depth);
        assert_eq!(map(&[("/a", "/b")]).line_from_agent(&line), line);
    }

    /// A path of a few short names, so that prefixes often match.
    fn path() -> impl Strategy<Value = String> {
        proptest::collection::vec("[ab]|[ab]{2}|[a-z %\u{e9}]{1,4}", 0..5)
            .prop_map(|names| "/".to_owned() + &names.join("/"))
    }

    /// A map from any directories to disjoint ones that no other path has.
    fn any_map() -> impl Strategy<Value = PathMap> {
        proptest::collection::btree_set(path(), 0..5).prop_map(|directories| {
            let pairs = directories.into_iter().enumerate();
            PathMap::new(pairs.map(|(number, here)| (here, format!("/Mount {number}")))).unwrap_or_default()
        })
    }

    proptest! {
        #[test]
        fn a_path_is_the_same_there_and_back(map in any_map(), path in path()) {
            let there = map.path_to_agent(&path);
            prop_assert_eq!(map.path_from_agent(&there), &*path);
            // In the other direction, with the sides exchanged.
            let exchanged = PathMap { pairs: map.pairs.iter().cloned().map(|(a, b)| (b, a)).collect() };
            let there = exchanged.path_from_agent(&path);
            prop_assert_eq!(exchanged.path_to_agent(&there), &*path);
        }

        #[test]
        fn an_address_is_the_same_there_and_back(map in any_map(), path in path()) {
            let address = format!("file://{}", percent_encoded(&path));
            let line = format!(r#"{{"params":{{"uri":"{address}"}}}}"#);
            let params = Json::parse(&line).unwrap().to_object().unwrap();
            let there = map.nested(params.to_json().raw(), Direction::ToAgent, 0);
            let there = there.map_or_else(|| line.clone(), |there| there.as_str().to_owned());
            prop_assert_eq!(map.line_from_agent(&there), line);
        }

        #[test]
        fn an_address_names_the_mapped_path(map in any_map(), path in path()) {
            let address = format!("file://{}", percent_encoded(&path));
            let mapped = map.address(&address, Direction::ToAgent).unwrap_or(address);
            let expected = format!("file://{}", percent_encoded(&map.path_to_agent(&path)));
            prop_assert_eq!(mapped, expected);
        }
    }
}
