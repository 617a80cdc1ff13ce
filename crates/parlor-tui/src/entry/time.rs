//! Times and durations in a few characters.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// How long something took: `0.2 s`, `48 s`, `3:10`, `1:02:03`.
pub(crate) fn duration(duration: SignedDuration) -> String {
    let millis = duration.as_millis().max(0);
    if millis < 9_950 {
        let tenths = (millis + 50) / 100;
        return format!("{}.{} s", tenths / 10, tenths % 10);
    }
    if millis < 59_500 {
        return format!("{} s", (millis + 500) / 1_000);
    }
    clock(duration)
}

/// How long something took, without fractions: `6 s`, `3:10`.
pub(crate) fn seconds(duration: SignedDuration) -> String {
    let seconds = (duration.as_millis().max(0) + 500) / 1_000;
    if seconds < 60 { format!("{seconds} s") } else { clock(duration) }
}

/// How long something has been running: `0:42`.
pub(crate) fn clock(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// When something was: `14:02`, or `12 Nov 09:31` if that was another day.
pub(crate) fn moment(at: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    let (at, now) = (at.to_zoned(zone.clone()), now.to_zoned(zone.clone()));
    let format = match (at.date() == now.date(), at.year() == now.year()) {
        (true, _) => "%H:%M",
        (false, true) => "%-d %b %H:%M",
        (false, false) => "%-d %b %Y %H:%M",
    };
    at.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_few_characters() {
        for (millis, short) in [
            (0, "0.0 s"),
            (149, "0.1 s"),
            (9_100, "9.1 s"),
            (9_960, "10 s"),
            (48_000, "48 s"),
            (59_600, "0:59"),
            (190_000, "3:10"),
            (3_723_000, "1:02:03"),
            (-5, "0.0 s"),
        ] {
            assert_eq!(duration(SignedDuration::from_millis(millis)), short);
        }
        assert_eq!(seconds(SignedDuration::from_millis(6_400)), "6 s");
        assert_eq!(clock(SignedDuration::from_secs(42)), "0:42");
    }

    #[test]
    fn a_time_has_its_day_if_it_is_not_today() {
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        let now = time("2026-11-17T14:05:00Z");
        for (at, short) in [
            ("2026-11-17T14:02:59Z", "14:02"),
            ("2026-11-12T09:31:00Z", "12 Nov 09:31"),
            ("2025-01-02T09:31:00Z", "2 Jan 2025 09:31"),
        ] {
            assert_eq!(moment(time(at), now, &TimeZone::UTC), short);
        }
    }
}
