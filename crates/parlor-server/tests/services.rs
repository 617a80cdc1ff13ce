//! Files and terminals that the server provides to agents.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use parlor_json::{Json, Object};
use parlor_process::Reaper;
use parlor_server::services::access::{FileAccess, FileScope};
use parlor_server::services::files;
use parlor_server::services::terminals::{MAX_TERMINALS, TerminalEvent, Terminals};
use parlor_testkit::process::is_alive;
use parlor_testkit::wait::{wait_until_async, within_timeout};
use parlor_wire::{RpcError, code};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use parlor_testkit::shell::{self, environment, reaper};

#[test]
#[ignore = "the helper process of the other tests"]
fn as_reaper() {
    shell::run_reaper();
}

fn object(value: &Value) -> Object {
    serde_json::from_value(value.clone()).unwrap()
}

fn value(json: &Json) -> Value {
    serde_json::from_str(json.as_str()).unwrap()
}

fn data(error: &RpcError) -> Value {
    error.data().map(value).unwrap_or_default()
}

/// Allows all files that are not private.
fn all() -> FileScope {
    FileScope::new(FileAccess::All, Vec::new(), Vec::new())
}

fn read(params: &Value) -> Result<String, RpcError> {
    read_in(&all(), params)
}

fn read_in(scope: &FileScope, params: &Value) -> Result<String, RpcError> {
    files::read(&object(params), scope).map(|json| value(&json)["content"].as_str().unwrap().to_owned())
}

fn write(path: &Path, content: &str) -> Result<Value, RpcError> {
    write_in(&all(), path, content)
}

fn write_in(scope: &FileScope, path: &Path, content: &str) -> Result<Value, RpcError> {
    let params = object(&json!({ "sessionId": "s", "path": path, "content": content }));
    files::write(&params, scope).map(|json| value(&json))
}

#[test]
fn a_file_whose_json_would_not_fit_is_refused_and_can_be_read_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    // Each line end is two characters as JSON.
    fs::write(&path, "\n".repeat(40 << 20)).unwrap();
    let refused = read(&json!({ "sessionId": "s", "path": path })).unwrap_err();
    assert!(refused.code() == code::INTERNAL_ERROR && refused.message().contains("in parts"), "{refused:?}");
    assert_eq!(read(&json!({ "sessionId": "s", "path": path, "line": 7, "limit": 3 })).unwrap(), "\n\n\n");
}

#[test]
fn files_are_read_whole_or_by_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    fs::write(&path, "one\r\ntwo\n\nvier€").unwrap();
    for (line, limit, content) in [
        (json!(null), json!(null), "one\r\ntwo\n\nvier€"),
        (json!(1), json!(1), "one\r\n"),
        (json!(0), json!(2), "one\r\ntwo\n"),
        (json!(2), json!(null), "two\n\nvier€"),
        (json!(3), json!(1), "\n"),
        (json!(4), json!(100), "vier€"),
        (json!(5), json!(1), ""),
        (json!(u64::MAX), json!(u64::MAX), ""),
        (json!(null), json!(3), "one\r\ntwo\n\n"),
        (json!(null), json!(0), ""),
    ] {
        let params = json!({ "path": path, "line": line, "limit": limit });
        assert_eq!(read(&params).unwrap(), content, "{line} {limit}");
    }
}

#[test]
fn the_error_for_an_unreadable_file_gives_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    fs::write(place("binary"), b"ab\xffc").unwrap();
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, place("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    fs::File::create(place("long")).unwrap().set_len(files::MAX_FILE + 1).unwrap();
    fs::File::create(place("longest")).unwrap().set_len(files::MAX_FILE).unwrap();

    let error = read(&json!({ "path": place("none") })).unwrap_err();
    assert_eq!(error.code(), code::RESOURCE_NOT_FOUND);
    assert_eq!(data(&error), json!({ "path": place("none") }));
    for (params, code, words) in [
        (json!({ "path": place("binary") }), code::INVALID_PARAMS, "byte 2 is not UTF-8"),
        (json!({ "path": "relative/file" }), code::INVALID_PARAMS, "absolute path"),
        (json!({}), code::INVALID_PARAMS, "`path` is missing"),
        (json!({ "path": 5 }), code::INVALID_PARAMS, "`path` must be a string, not 5"),
        (
            json!({ "path": place("binary"), "line": "1" }),
            code::INVALID_PARAMS,
            "`line` must be a whole number",
        ),
        (json!({ "path": place("binary"), "limit": -1 }), code::INVALID_PARAMS, "not -1"),
        (json!({ "path": "/a\u{0}b" }), code::INVALID_PARAMS, "cannot read"),
        (json!({ "path": folder.path() }), code::INTERNAL_ERROR, "directory"),
        (json!({ "path": "/dev/zero" }), code::INVALID_PARAMS, "are not served"),
        (json!({ "path": place("pipe") }), code::INTERNAL_ERROR, "not a regular file"),
        (json!({ "path": place("long") }), code::INTERNAL_ERROR, "longer than 64 MiB"),
    ] {
        let error = read(&params).unwrap_err();
        assert_eq!(error.code(), code, "{params}: {error}");
        assert!(error.message().contains(words), "{params}: {error}");
    }
    assert!(read(&json!({ "path": place("longest"), "limit": 0 })).is_ok());
}

#[test]
fn files_are_created_but_directories_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new");
    assert_eq!(write(&path, "text\r\n").unwrap(), json!({}));
    assert_eq!(fs::read_to_string(&path).unwrap(), "text\r\n");
    let usual = folder.path().join("usual");
    fs::write(&usual, "").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode(), fs::metadata(&usual).unwrap().mode());

    let nowhere = folder.path().join("none/new");
    let error = write(&nowhere, "").unwrap_err();
    assert_eq!((error.code(), data(&error)), (code::RESOURCE_NOT_FOUND, json!({ "path": nowhere })));
    assert_eq!(write(folder.path(), "").unwrap_err().code(), code::INTERNAL_ERROR);
    assert_eq!(write(Path::new("relative"), "").unwrap_err().code(), code::INVALID_PARAMS);
    let half = files::write(
        &Object::parse(Json::parse(r#"{"path":"/x","content":"\ud83d"}"#).unwrap().raw()).unwrap(),
        &all(),
    );
    assert_eq!(half.unwrap_err().code(), code::INVALID_PARAMS);
    assert_eq!(names(folder.path()), ["new", "usual"], "nothing else is left");
}

fn names(folder: &Path) -> Vec<String> {
    let entries =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = entries.collect();
    names.sort();
    names
}

#[test]
fn a_file_is_replaced_at_once_and_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    let before = fs::File::open(&path).unwrap();
    write(&path, "new").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o750);
    assert_eq!(std::io::read_to_string(before).unwrap(), "old", "who reads it sees the old text to its end");
    assert_eq!(names(folder.path()), ["script"]);
}

#[test]
fn writing_to_a_link_writes_to_its_target() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    fs::create_dir(place("other")).unwrap();
    fs::write(place("other/target"), "old").unwrap();
    symlink("other/target", place("link")).unwrap();
    symlink("other/missing", place("dangling")).unwrap();
    fs::write(place("hard"), "old").unwrap();
    fs::hard_link(place("hard"), place("also")).unwrap();
    for (name, target) in [("link", "other/target"), ("dangling", "other/missing"), ("hard", "also")] {
        write(&place(name), "new").unwrap();
        assert_eq!(fs::read_to_string(place(target)).unwrap(), "new", "{name}");
    }
    assert!(place("link").is_symlink() && place("dangling").is_symlink());
    assert_eq!(names(folder.path()), ["also", "dangling", "hard", "link", "other"]);
}

/// The reason for which a file is refused.
fn reason(refused: &RpcError) -> String {
    assert_eq!(refused.code(), code::INVALID_PARAMS, "{refused}");
    data(refused)["reason"].as_str().unwrap_or_else(|| panic!("{refused}")).to_owned()
}

#[test]
fn only_files_in_the_directories_of_the_session_are_served() {
    let home = tempfile::tempdir().unwrap();
    let place = |name: &str| home.path().join(name);
    for folder in ["work/sub", "more", "other", "work/data/log"] {
        fs::create_dir_all(place(folder)).unwrap();
    }
    for file in ["work/in", "work/sub/in", "more/in", "other/out", "work/data/token", "workshop"] {
        fs::write(place(file), file).unwrap();
    }
    symlink(place("work"), place("alias")).unwrap();
    symlink(place("other"), place("work/away")).unwrap();
    symlink(place("other/out"), place("work/out")).unwrap();
    symlink(place("other/new"), place("work/dangling")).unwrap();
    symlink("../more/in", place("work/near")).unwrap();
    symlink(place("work/data"), place("work/inner")).unwrap();
    symlink(place("work/round"), place("work/round")).unwrap();
    let directories = vec![place("alias"), place("more"), place("missing")];
    let scope = FileScope::new(FileAccess::Workspace, directories, vec![place("work/data")]);
    let read = |name: &str| read_in(&scope, &json!({ "path": place(name) }));
    for (name, content) in [
        ("work/in", "work/in"),
        ("alias/in", "work/in"),
        ("alias/sub/../in", "work/in"),
        ("other/../work/sub/in", "work/sub/in"),
        ("work/near", "more/in"),
    ] {
        assert_eq!(read(name).unwrap(), content, "{name}");
    }
    for name in [
        "other/out",
        "work/../other/out",
        "work/away/out",
        "work/away/missing",
        "work/out",
        "work/dangling",
        "workshop",
        "workshop/missing",
        "missing/file",
        "other/none/file",
        "..",
    ] {
        assert_eq!(reason(&read(name).unwrap_err()), "outside", "{name}");
        let written = write_in(&scope, &place(name), "changed");
        assert_eq!(reason(&written.unwrap_err()), "outside", "{name}");
    }
    for name in
        ["work/data/token", "work/inner/token", "work/data/log/new", "alias/data/none/x", "work/inner"]
    {
        let path = place(name);
        assert_eq!(reason(&write_in(&scope, &path, "changed").unwrap_err()), "private", "{name}");
        let everywhere = FileScope::new(FileAccess::All, Vec::new(), vec![place("work/data")]);
        assert_eq!(reason(&write_in(&everywhere, &path, "changed").unwrap_err()), "private", "{name}");
    }
    assert_eq!(read("work/none").unwrap_err().code(), code::RESOURCE_NOT_FOUND);
    assert_eq!(read("work/none/file").unwrap_err().code(), code::RESOURCE_NOT_FOUND);
    assert_eq!(read("work/sub/..").unwrap_err().code(), code::INTERNAL_ERROR);
    assert_eq!(read("work/round").unwrap_err().code(), code::INTERNAL_ERROR);
    write_in(&scope, &place("work/sub/new"), "new").unwrap();
    assert_eq!(read("alias/sub/new").unwrap(), "new");
    assert_eq!(fs::read_to_string(place("other/out")).unwrap(), "other/out");
    assert_eq!(names(&place("other")), ["out"]);

    let off = FileScope::new(FileAccess::Off, vec![place("work")], Vec::new());
    assert_eq!(
        read_in(&off, &json!({ "path": place("work/in") })).unwrap_err().code(),
        code::METHOD_NOT_FOUND
    );
    assert_eq!(write_in(&off, &place("work/in"), "").unwrap_err().code(), code::METHOD_NOT_FOUND);
}

#[test]
fn a_client_is_sent_only_paths_that_are_inside_however_it_resolves_them() {
    let home = tempfile::tempdir().unwrap();
    let place = |name: &str| home.path().join(name);
    for folder in ["work/sub/deep/er", "work/sub/other", "other"] {
        fs::create_dir_all(place(folder)).unwrap();
    }
    for file in ["work/in", "work/sub/other/out", "other/out"] {
        fs::write(place(file), file).unwrap();
    }
    symlink(place("other"), place("work/away")).unwrap();
    symlink(place("other/new"), place("work/dangling")).unwrap();
    symlink("../gone/../../other/out", place("work/sub/far")).unwrap();
    symlink(place("work/new"), place("work/near")).unwrap();
    symlink(place("work/sub/deep/er"), place("work/short")).unwrap();
    symlink(place("work/round"), place("work/round")).unwrap();
    let workspace = FileScope::new(FileAccess::Workspace, vec![place("work")], Vec::new());
    let everywhere = FileScope::new(FileAccess::All, Vec::new(), vec![place("other")]);
    let check = |scope: &FileScope, name: &str| files::check(&object(&json!({ "path": place(name) })), scope);
    for name in [
        "work/in",
        "work/sub/../in",
        "work/new",
        "work/sub/../new",
        "work/near",
        "work/none/new",
        "work/none/a/b",
    ] {
        check(&workspace, name).unwrap();
        check(&everywhere, name).unwrap();
    }
    for (name, why) in [
        ("other/out", "outside"),
        ("work/away/out", "outside"),
        ("work/dangling", "outside"),
        ("work/none/../../other/out", "unresolved"),
        ("work/none/../in", "unresolved"),
        ("work/in/../../other/out", "unresolved"),
        ("work/near/x", "unresolved"),
        ("work/dangling/x", "unresolved"),
        ("work/dangling/x/y", "unresolved"),
        ("work/sub/far", "unresolved"),
        ("work/round", "unresolved"),
        ("work/round/x", "unresolved"),
        ("work/short/../../../../other/out", "outside"),
        // The system resolves this into the workspace; removing the name before `..` leads elsewhere.
        ("work/short/../../other/out", "outside"),
    ] {
        assert_eq!(reason(&check(&workspace, name).unwrap_err()), why, "{name}");
    }
    for name in [
        "work/none/../../other/out",
        "work/in/../../other/out",
        "work/dangling/x",
        "work/short/../../other/out",
    ] {
        check(&everywhere, name).unwrap_err();
    }
    let off = FileScope::new(FileAccess::Off, vec![place("work")], Vec::new());
    assert_eq!(check(&off, "work/in").unwrap_err().code(), code::METHOD_NOT_FOUND);
}

#[test]
#[cfg(target_os = "linux")]
fn files_of_processes_and_devices_are_never_served() {
    let folder = tempfile::tempdir().unwrap();
    symlink("/proc/self", folder.path().join("me")).unwrap();
    for scope in
        [all(), FileScope::new(FileAccess::Workspace, vec!["/".into(), "/proc/self".into()], Vec::new())]
    {
        for path in
            ["/proc/self/environ", "/proc/1/../self/environ", "/sys/kernel/mm", "/dev/null", "/dev/shm/x"]
        {
            assert_eq!(reason(&read_in(&scope, &json!({ "path": path })).unwrap_err()), "private", "{path}");
            let path = Path::new(path);
            assert_eq!(reason(&write_in(&scope, path, "").unwrap_err()), "private", "{}", path.display());
        }
        let path = folder.path().join("me/environ");
        assert_eq!(reason(&read_in(&scope, &json!({ "path": path })).unwrap_err()), "private");
    }
}

#[test]
fn a_link_that_appears_meanwhile_is_not_followed() {
    let home = tempfile::tempdir().unwrap();
    let place = |name: &str| home.path().join(name);
    for folder in ["work/real", "other"] {
        fs::create_dir_all(place(folder)).unwrap();
    }
    fs::write(place("work/real/file"), "inside").unwrap();
    fs::write(place("other/file"), "outside").unwrap();
    symlink(place("other"), place("work/link")).unwrap();
    let scope = FileScope::new(FileAccess::Workspace, vec![place("work")], Vec::new());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // The name alternates between a directory and a link.
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                fs::rename(place("work/real"), place("work/aside")).unwrap();
                fs::rename(place("work/link"), place("work/real")).unwrap();
                fs::rename(place("work/real"), place("work/link")).unwrap();
                fs::rename(place("work/aside"), place("work/real")).unwrap();
            }
        });
        for round in 0..2000 {
            let path = place("work/real/file");
            if let Ok(content) = read_in(&scope, &json!({ "path": path })) {
                assert!(content == "inside" || content.starts_with("round"), "{content}");
            }
            let _ = write_in(&scope, &path, &format!("round {round}"));
            let _ = write_in(&scope, &place("work/real/new"), "new");
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(fs::read_to_string(place("other/file")).unwrap(), "outside");
    assert_eq!(names(&place("other")), ["file"]);
}

struct Session {
    terminals: Terminals,
    events: mpsc::Receiver<TerminalEvent>,
    _watcher: Reaper,
}

impl Session {
    fn new() -> Self {
        Self::with_room(1000)
    }

    fn with_room(room: usize) -> Self {
        let reaper = reaper();
        let (sender, events) = mpsc::channel(room);
        let terminals = Terminals::new(reaper.clone(), environment(), "/".into(), sender);
        Self { terminals, events, _watcher: reaper }
    }

    async fn ask(&self, method: &str, params: Value) -> Result<Value, RpcError> {
        within_timeout(self.terminals.serve(method, &object(&params))).await.map(|json| value(&json))
    }

    async fn create(&self, params: Value) -> String {
        self.ask("terminal/create", params).await.unwrap()["terminalId"].as_str().unwrap().to_owned()
    }

    async fn shell(&self, script: &str) -> String {
        self.create(json!({ "sessionId": "s", "command": "sh", "args": ["-c", script] })).await
    }

    async fn of(&self, method: &str, id: &str) -> Result<Value, RpcError> {
        self.ask(method, json!({ "sessionId": "s", "terminalId": id })).await
    }

    async fn output(&self, id: &str) -> Value {
        self.of("terminal/output", id).await.unwrap()
    }

    /// The process id that a script writes first.
    async fn pid(&self, id: &str) -> u32 {
        let mut pid = None;
        wait_until_async("the script has written its id", async || {
            let output = self.output(id).await["output"].as_str().unwrap().to_owned();
            pid = output.split_once('\n').map(|(line, _)| line.parse().unwrap());
            pid.is_some()
        })
        .await;
        pid.unwrap()
    }
}

#[tokio::test]
async fn a_command_is_run_and_its_events_are_reported() {
    let mut session = Session::new();
    let folder = tempfile::tempdir().unwrap();
    let cwd = folder.path().canonicalize().unwrap();
    let id = session
        .create(json!({
            "sessionId": "s",
            "command": "sh",
            "args": ["-c", "pwd; echo $OWN >&2; exit 3"],
            "env": [{ "name": "OWN", "value": "a b" }],
            "cwd": cwd,
            "outputByteLimit": null,
        }))
        .await;
    assert_eq!(
        session.of("terminal/wait_for_exit", &id).await.unwrap(),
        json!({ "exitCode": 3, "signal": null })
    );
    let text = format!("{}\na b\n", cwd.display());
    let exit = json!({ "exitCode": 3, "signal": null });
    let output = json!({ "output": text, "truncated": false, "exitStatus": exit });
    assert_eq!(session.output(&id).await, output);
    assert_eq!(session.of("terminal/release", &id).await.unwrap(), json!({}));
    let error = session.of("terminal/output", &id).await.unwrap_err();
    assert_eq!((error.code(), data(&error)), (code::RESOURCE_NOT_FOUND, json!({ "terminalId": id })));

    let first = session.events.recv().await.unwrap();
    let command = "sh -c 'pwd; echo $OWN >&2; exit 3'".to_owned();
    assert_eq!(first, TerminalEvent::Created { id: id.as_str().into(), command, cwd });
    let mut written = Vec::new();
    let mut next = within_timeout(session.events.recv()).await.unwrap();
    while let TerminalEvent::Output { bytes, .. } = next {
        written.extend(bytes);
        next = within_timeout(session.events.recv()).await.unwrap();
    }
    assert_eq!(String::from_utf8(written).unwrap(), text);
    assert_eq!(next, TerminalEvent::Exited { id: id.as_str().into(), code: Some(3), signal: None });
    let last = within_timeout(session.events.recv()).await.unwrap();
    assert_eq!(last, TerminalEvent::Released { id: id.as_str().into() });
}

#[tokio::test]
async fn a_command_line_without_arguments_is_run_by_a_shell() {
    let session = Session::new();
    let id = session.create(json!({ "command": "echo a && echo b | tr b c" })).await;
    session.of("terminal/wait_for_exit", &id).await.unwrap();
    assert_eq!(session.output(&id).await["output"], "a\nc\n");
}

#[tokio::test]
async fn the_error_names_the_program_that_cannot_be_started() {
    let session = Session::new();
    for (params, code, words) in [
        (json!({ "command": "no-such-command" }), code::RESOURCE_NOT_FOUND, "no-such-command"),
        (json!({ "command": "true", "cwd": "/no/folder" }), code::RESOURCE_NOT_FOUND, "/no/folder"),
        (json!({ "command": "true", "cwd": "folder" }), code::INVALID_PARAMS, "absolute"),
        (json!({ "command": "/", "args": ["x"] }), code::INTERNAL_ERROR, "cannot start `/`"),
        (json!({ "command": "a\u{0}b" }), code::INVALID_PARAMS, "cannot start"),
        (json!({}), code::INVALID_PARAMS, "`command` is missing"),
        (json!({ "command": "true", "args": "x" }), code::INVALID_PARAMS, "`args` must be an array"),
        (json!({ "command": "true", "args": [1] }), code::INVALID_PARAMS, "`args` must be a string"),
        (json!({ "command": "true", "env": [{ "name": "X" }] }), code::INVALID_PARAMS, "`value` is missing"),
    ] {
        let error = session.ask("terminal/create", params.clone()).await.unwrap_err();
        assert_eq!(error.code(), code, "{params}: {error}");
        assert!(error.message().contains(words), "{params}: {error}");
    }
    assert_eq!(session.of("terminal/other", "x").await.unwrap_err().code(), code::METHOD_NOT_FOUND);
    assert_eq!(session.of("terminal/kill", "x").await.unwrap_err().code(), code::RESOURCE_NOT_FOUND);
}

#[tokio::test]
async fn a_killed_command_stays_until_it_is_released() {
    let session = Session::new();
    let id = session.shell("echo $$; echo text; exec sleep 1000").await;
    session.pid(&id).await;
    let params = object(&json!({ "terminalId": id }));
    let waiters: Vec<_> =
        (0..3).map(|_| tokio::spawn(session.terminals.serve("terminal/wait_for_exit", &params))).collect();
    assert_eq!(session.of("terminal/kill", &id).await.unwrap(), json!({}));
    for waiter in waiters {
        let exit = within_timeout(waiter).await.unwrap().unwrap();
        assert_eq!(value(&exit), json!({ "exitCode": null, "signal": "SIGTERM" }));
    }
    let output = session.output(&id).await;
    assert!(output["output"].as_str().unwrap().ends_with("text\n"));
    assert_eq!(output["exitStatus"], json!({ "exitCode": null, "signal": "SIGTERM" }));
    session.of("terminal/kill", &id).await.unwrap();
}

#[tokio::test]
async fn a_command_that_ignores_sigterm_is_killed() {
    let session = Session::new();
    let id = session.shell("trap '' TERM; echo $$; while :; do sleep 1000; done").await;
    session.pid(&id).await;
    session.of("terminal/kill", &id).await.unwrap();
    session.of("terminal/kill", &id).await.unwrap();
    let exit = session.of("terminal/wait_for_exit", &id).await.unwrap();
    assert_eq!(exit, json!({ "exitCode": null, "signal": "SIGKILL" }));
}

#[tokio::test]
async fn release_and_drop_end_commands_and_their_children() {
    for drop_all in [false, true] {
        let mut session = Session::new();
        let id = session.shell("sleep 1000 & echo $!; wait").await;
        let pid = session.pid(&id).await;
        let params = object(&json!({ "terminalId": id }));
        let waiter = tokio::spawn(session.terminals.serve("terminal/wait_for_exit", &params));
        if drop_all {
            drop(session.terminals);
        } else {
            session.of("terminal/release", &id).await.unwrap();
        }
        let exit = within_timeout(waiter).await.unwrap().unwrap();
        assert_eq!(value(&exit)["signal"], "SIGTERM");
        assert!(!is_alive(pid));
        let released = TerminalEvent::Released { id: id.as_str().into() };
        while within_timeout(session.events.recv()).await.unwrap() != released {}
    }
}

#[tokio::test]
async fn children_that_outlive_their_command_do_not_keep_a_terminal_open() {
    let session = Session::new();
    let id = session.shell("sleep 1000 & echo $!").await;
    let exit = session.of("terminal/wait_for_exit", &id).await.unwrap();
    assert_eq!(exit, json!({ "exitCode": 0, "signal": null }));
    assert!(!is_alive(session.pid(&id).await));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_that_cannot_be_found_does_not_keep_a_terminal_open() {
    let session = Session::new();
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{}; echo said", shell::HIDE.trim());
    let id = session.create(json!({ "command": script, "cwd": folder.path() })).await;
    let exit = session.of("terminal/wait_for_exit", &id).await;
    shell::end_hidden(folder.path());
    assert_eq!(exit.unwrap(), json!({ "exitCode": 0, "signal": null }));
    assert_eq!(session.output(&id).await["output"], "said\n");
}

#[tokio::test]
async fn output_is_kept_up_to_the_limit() {
    let session = Session::new();
    for (limit, kept, truncated) in
        [(100, "a€€b", false), (8, "a€€b", false), (7, "€€b", true), (6, "€b", true)]
    {
        let params = json!({ "command": "printf", "args": ["a€€b"], "outputByteLimit": limit });
        let id = session.create(params).await;
        session.of("terminal/wait_for_exit", &id).await.unwrap();
        let output = session.output(&id).await;
        assert_eq!((&output["output"], &output["truncated"]), (&json!(kept), &json!(truncated)), "{limit}");
    }
    let id = session.shell("head -c 3000000 /dev/zero | tr '\\0' x; printf end").await;
    session.of("terminal/wait_for_exit", &id).await.unwrap();
    let output = session.output(&id).await;
    assert_eq!(output["output"].as_str().unwrap(), format!("{}end", "x".repeat((1 << 20) - 3)));
    assert_eq!(output["truncated"], true);
}

#[tokio::test]
async fn output_that_is_not_text_is_reported_unchanged() {
    let mut session = Session::new();
    let id = session.shell("printf 'a\\377\\342\\202'").await;
    session.of("terminal/wait_for_exit", &id).await.unwrap();
    assert_eq!(session.output(&id).await["output"], "a\u{fffd}\u{fffd}");
    let mut written = Vec::new();
    loop {
        match within_timeout(session.events.recv()).await.unwrap() {
            TerminalEvent::Created { .. } => {}
            TerminalEvent::Output { bytes, .. } => written.extend(bytes),
            TerminalEvent::Exited { .. } | TerminalEvent::Released { .. } => break,
        }
    }
    assert_eq!(written, b"a\xff\xe2\x82");
}

#[tokio::test]
async fn a_slow_reader_of_events_slows_the_command_and_loses_nothing() {
    const LENGTH: usize = 5_000_000;
    let mut session = Session::with_room(2);
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    let script = format!("head -c {LENGTH} /dev/zero; : > {}", done.display());
    let id = session.shell(&script).await;
    // The events are not read, so the output stops growing long before its end.
    let mut length = 0;
    wait_until_async("the output stands still", async || {
        let before = length;
        tokio::time::sleep(Duration::from_millis(50)).await;
        length = session.output(&id).await["output"].as_str().unwrap().len();
        length > 0 && length == before
    })
    .await;
    assert!(length < LENGTH / 2, "{length}");
    assert!(!done.exists());

    let mut received = 0;
    loop {
        match within_timeout(session.events.recv()).await.unwrap() {
            TerminalEvent::Created { .. } => {}
            TerminalEvent::Output { bytes, .. } => received += bytes.len(),
            TerminalEvent::Exited { .. } | TerminalEvent::Released { .. } => break,
        }
    }
    assert_eq!(received, LENGTH);
    assert!(done.exists());
}

#[tokio::test]
async fn the_number_of_terminals_of_a_session_is_limited() {
    let session = Session::new();
    let mut ids = Vec::new();
    for _ in 0..MAX_TERMINALS {
        ids.push(session.create(json!({ "command": "true" })).await);
    }
    let error = session.ask("terminal/create", json!({ "command": "true" })).await.unwrap_err();
    assert!(error.message().contains("terminal/release"), "{error}");
    session.of("terminal/release", &ids[0]).await.unwrap();
    ids.push(session.create(json!({ "command": "true" })).await);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), MAX_TERMINALS + 1, "no id is given twice");
}
