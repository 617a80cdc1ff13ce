use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use parlor_server::data_dir::{self, DataDir, DataDirError};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_command_line_takes_precedence_over_the_environment_and_both_over_the_default() {
    let flag = || Some(PathBuf::from("/by/flag"));
    let env = || Some(OsString::from("/by/env"));
    assert_eq!(data_dir::path(flag(), env()).unwrap(), Path::new("/by/flag"));
    assert_eq!(data_dir::path(None, env()).unwrap(), Path::new("/by/env"));
    assert!(data_dir::path(None, None).unwrap().ends_with("parlor"));
    assert!(data_dir::path(None, Some(OsString::new())).unwrap().ends_with("parlor"));
    assert!(data_dir::path(Some("relative".into()), None).unwrap().is_absolute());
}

#[test]
fn access_to_the_directory_is_restricted_even_if_it_was_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b");
    DataDir::open(&path).unwrap();
    assert_eq!(mode(&path), 0o700);
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    DataDir::open(&path).unwrap();
    assert_eq!(mode(&path), 0o700);
}

#[test]
fn the_directory_of_another_user_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    // Only root can change the owner; for other users the root directory belongs to another user.
    let path = match std::os::unix::fs::chown(directory.path(), Some(12345), None) {
        Ok(()) => directory.path(),
        Err(_) => Path::new("/"),
    };
    assert!(matches!(DataDir::open(path), Err(DataDirError::NotOurs(_))));
}

#[test]
fn a_second_server_gets_the_pid_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(directory.path()).unwrap();
    let lock = data.lock().unwrap();
    let refused = data.lock().unwrap_err();
    assert!(
        matches!(refused, DataDirError::Locked { pid: Some(pid), .. } if pid == std::process::id()),
        "{refused}"
    );
    assert!(refused.to_string().contains(&std::process::id().to_string()));
    let clone = lock.clone();
    drop(lock);
    data.lock().unwrap_err();
    drop(clone);
    data.lock().unwrap();
}

#[test]
fn tokens_are_created_once_and_only_the_owner_can_read_them() {
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(directory.path()).unwrap();
    let lock = data.lock().unwrap();
    let tokens = data.tokens(&lock, None).unwrap();
    let observer = tokens.observer.clone().unwrap();
    assert_eq!((tokens.driver.len(), observer.len()), (64, 64));
    assert_ne!(tokens.driver, observer);
    assert_eq!(data.tokens(&lock, None).unwrap(), tokens);
    let file = directory.path().join("token");
    assert_eq!((mode(&file), mode(&directory.path().join("token.read"))), (0o600, 0o600));
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), tokens.driver);

    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    data.tokens(&lock, None).unwrap();
    assert_eq!(mode(&file), 0o600);

    assert_eq!(data.tokens(&lock, Some("of-my.own_1~0123".into())).unwrap().driver, "of-my.own_1~0123");
    assert_eq!(data.tokens(&lock, Some(String::new())).unwrap(), tokens);
    for bad in ["two words", "comma,", "line\n", "ü"] {
        let refused = data.tokens(&lock, Some(bad.into())).unwrap_err();
        assert!(refused.to_string().contains("PARLOR_TOKEN"), "{refused}");
    }
    let refused = data.tokens(&lock, Some("of-my.own_1~012".into())).unwrap_err();
    assert!(refused.to_string().contains("PARLOR_TOKEN is shorter than 16"), "{refused}");
    fs::write(&file, "short").unwrap();
    assert!(matches!(data.tokens(&lock, None), Err(DataDirError::ShortToken(path)) if path == file));
    fs::write(&file, "").unwrap();
    assert!(matches!(data.tokens(&lock, None), Err(DataDirError::BadToken(path)) if path == file));
    assert!(!format!("{tokens:?}").contains(&tokens.driver));
}

#[test]
fn a_socket_whose_path_is_too_long_is_placed_elsewhere_and_found() {
    let directory = tempfile::tempdir().unwrap();
    let (runtime, temp) = (directory.path().join("run"), directory.path().join("tmp"));
    for made in [&runtime, &temp] {
        fs::create_dir(made).unwrap();
        fs::set_permissions(made, Permissions::from_mode(0o700)).unwrap();
    }
    let short = DataDir::open(&directory.path().join("short")).unwrap();
    let lock = short.lock().unwrap();
    let here = short.path().join("parlor.sock");
    assert_eq!(short.place_socket(&lock, Some(runtime.clone()), &temp).unwrap(), here);
    assert_eq!(short.socket(), here);

    let long = DataDir::open(&directory.path().join("x".repeat(100))).unwrap();
    let lock = long.lock().unwrap();
    let socket = long.place_socket(&lock, Some(runtime.clone()), &temp).unwrap();
    assert_eq!(socket.parent(), Some(runtime.as_path()));
    assert_eq!(long.socket(), socket);

    // A directory that others may read is not used.
    fs::set_permissions(&runtime, Permissions::from_mode(0o755)).unwrap();
    let socket = long.place_socket(&lock, Some(runtime), &temp).unwrap();
    let parent = socket.parent().unwrap();
    assert_eq!((parent.parent(), mode(parent)), (Some(temp.as_path()), 0o700));
    assert_eq!(long.place_socket(&lock, None, &temp).unwrap(), socket, "it is the same every time");

    // A link that another user placed there is not followed.
    fs::remove_dir(parent).unwrap();
    std::os::unix::fs::symlink(directory.path(), parent).unwrap();
    assert!(matches!(long.place_socket(&lock, None, &temp), Err(DataDirError::NotOurs(_))));

    let refused = long.place_socket(&lock, None, long.path()).unwrap_err();
    assert!(matches!(refused, DataDirError::SocketTooLong(_)), "{refused}");
}

#[test]
fn a_token_of_another_user_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(directory.path()).unwrap();
    let lock = data.lock().unwrap();
    data.tokens(&lock, None).unwrap();
    for name in ["token", "token.read"] {
        let file = data.path().join(name);
        if std::os::unix::fs::chown(&file, Some(12345), None).is_err() {
            // Only root can change the owner of a file.
            return;
        }
        let refused = data.tokens(&lock, None).unwrap_err();
        assert!(matches!(&refused, DataDirError::NotOurs(path) if *path == file), "{refused}");
        fs::remove_file(&file).unwrap();
        data.tokens(&lock, None).unwrap();
    }
}

#[test]
fn a_lock_knows_whether_its_directory_was_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let lock = DataDir::open(&path).unwrap().lock().unwrap();
    assert!(lock.is_in_place());
    let moved = directory.path().join("moved");
    fs::rename(&path, &moved).unwrap();
    assert!(!lock.is_in_place());
    // A lock that another server created with the same path is another one.
    let other = DataDir::open(&path).unwrap().lock().unwrap();
    assert!(!lock.is_in_place() && other.is_in_place());
    fs::remove_dir_all(&path).unwrap();
    fs::rename(&moved, &path).unwrap();
    assert!(lock.is_in_place() && !other.is_in_place());
}
