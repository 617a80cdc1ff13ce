//! What is different on a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::place::{Place, until};

/// A command at a terminal of 60 columns.
struct Seat {
    child: Child,
    keys: File,
    seen: Arc<Mutex<String>>,
}

impl Seat {
    fn new(place: &Place, args: &[&str]) -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let line = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        tcsetwinsize(&line, Winsize { ws_row: 24, ws_col: 60, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let stream = || Stdio::from(OwnedFd::from(line.try_clone().unwrap()));
        let child = place
            .command(args)
            .env("TERM", "xterm-256color")
            .stdin(stream())
            .stdout(stream())
            .stderr(stream())
            .spawn()
            .unwrap();
        drop(line);
        let seen = Arc::new(Mutex::new(String::new()));
        let keys = File::from(person);
        let (mut screen, into) = (keys.try_clone().unwrap(), Arc::clone(&seen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut bytes) {
                into.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        Self { child, keys, seen }
    }

    fn sees(&self, text: &str) {
        until(|| self.seen.lock().unwrap().contains(text));
    }

    fn types(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).unwrap();
    }

    /// The exit code and all that was on the screen.
    fn ends(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        // What was written last is still on its way.
        std::thread::sleep(std::time::Duration::from_millis(100));
        (code, self.seen.lock().unwrap().clone())
    }
}

#[test]
fn a_person_chooses_by_number() {
    let place = Place::served();
    let mut seat = Seat::new(&place, &["prompt", "--new", "tool Look\nask Delete \u{1b}[2Jit"]);
    seat.sees("Choose a number: ");
    seat.types("9\n");
    until(|| seat.seen.lock().unwrap().matches("Choose a number: ").count() == 2);
    seat.types("1\n");
    let (code, seen) = seat.ends();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("You allowed it this once.") && seen.contains("✓ Look"), "{seen}");
    assert!(!seen.contains("\u{1b}[2J"), "{seen:?}");
}

#[test]
fn deleting_asks_first() {
    let place = Place::served();
    let id = place.begin("say hello");
    for (typed, code) in [("\n", 1), ("y\n", 0)] {
        let mut seat = Seat::new(&place, &["rm", &id]);
        seat.sees("Delete 1 session for good? [y/N] ");
        seat.types(typed);
        assert_eq!(seat.ends().0, Some(code));
    }
    place.run(&["show", &id]).ended(2);
}

#[test]
fn a_terminal_has_colours_and_an_edge() {
    let place = Place::served();
    place.begin("title A title that is far too long for a terminal of only sixty columns");
    let (code, seen) = Seat::new(&place, &["ls"]).ends();
    assert_eq!(code, Some(0));
    assert!(seen.contains("\u{1b}[1m") && seen.contains('…'), "{seen:?}");
    let plain = anstream::adapter::strip_str(&seen).to_string();
    assert!(plain.lines().all(|line| line.trim_end().chars().count() <= 60), "{plain}");
    let (_, seen) = Seat::new(&place, &["show", "latest"]).ends();
    assert!(seen.contains("\u{1b}[1m\u{1b}[36muser"), "{seen:?}");
}
