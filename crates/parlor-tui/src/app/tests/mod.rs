//! Scripts of events and keys, and the screens that result.

macro_rules! screen {
    ($script:expr, $width:literal x $height:literal, $name:literal) => {
        let screen = $script.screen($width, $height);
        for (number, row) in screen.lines().enumerate() {
            assert!(crate::text::width(row) <= $width, "row {number} is too wide: {row}");
        }
        assert_eq!(screen.lines().count(), $height);
        expect_file![concat!("screens/", $name, ".txt")].assert_eq(&screen);
    };
}

mod connection;
mod drawing;
mod fixtures;
mod input;
mod mouse;
mod races;
mod reading;
mod requests;
mod script;
mod sessions;

use expect_test::expect_file;

use self::fixtures::*;
use self::script::*;
use super::*;
