//! Times, durations and quantities as people read them.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// Whole seconds between two times; 0 if they are in the wrong order.
pub fn seconds_between(start: Timestamp, end: Timestamp) -> u64 {
    u64::try_from(end.duration_since(start).as_secs()).unwrap_or(0)
}

/// A running duration: `0:42`, `12:40`, `1:02:03`.
pub fn clock(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// How long ago something was, in at most 3 columns: `20s`, `2m`, `1h`, `3d`, `9w`.
pub fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        86_400..8_640_000 => format!("{}d", seconds / 86_400),
        _ => format!("{}w", seconds / 604_800),
    }
}

/// How long something waits: `40 s`, `5 min`, `3 h`, `2 d`.
pub fn waiting(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// How long something took: `0.2 s`, `48 s`, `3:10`, `1:02:03`.
pub fn duration(duration: SignedDuration) -> String {
    let millis = duration.as_millis().max(0);
    if millis < 9_950 {
        let tenths = (millis + 50) / 100;
        return format!("{}.{} s", tenths / 10, tenths % 10);
    }
    if millis < 59_500 {
        return format!("{} s", (millis + 500) / 1_000);
    }
    clock(u64::try_from(duration.as_secs()).unwrap_or(0))
}

/// How long something took, without fractions: `6 s`, `3:10`; `None` if it is less than half a second.
pub fn seconds(duration: SignedDuration) -> Option<String> {
    let seconds = u64::try_from((duration.as_millis().max(0) + 500) / 1_000).unwrap_or(0);
    match seconds {
        0 => None,
        1..60 => Some(format!("{seconds} s")),
        _ => Some(clock(seconds)),
    }
}

/// When something was: `14:02`, or `12 Nov 09:31` if that was another day.
pub fn moment(at: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    let (at, now) = (at.to_zoned(zone.clone()), now.to_zoned(zone.clone()));
    let format = match (at.date() == now.date(), at.year() == now.year()) {
        (true, _) => "%H:%M",
        (false, true) => "%-d %b %H:%M",
        (false, false) => "%-d %b %Y %H:%M",
    };
    at.strftime(format).to_string()
}

/// The time of day with seconds.
pub fn with_seconds(time: Timestamp, zone: &TimeZone) -> String {
    time.to_zoned(zone.clone()).strftime("%H:%M:%S").to_string()
}

/// A number of tokens: `940`, `36k`, `1.2M`.
pub fn tokens(count: u64) -> String {
    match count {
        0..1000 => count.to_string(),
        1000..1_000_000 => format!("{}k", count / 1000),
        _ => format!("{}.{}M", count / 1_000_000, count / 100_000 % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_quantities_are_short() {
        assert_eq!([clock(42), clock(118), clock(3723)], ["0:42", "1:58", "1:02:03"]);
        assert_eq!([age(20), age(150), age(7300), age(200_000)], ["20s", "2m", "2h", "2d"]);
        assert_eq!([waiting(40), waiting(300)], ["40 s", "5 min"]);
        assert_eq!([tokens(940), tokens(124_300), tokens(1_250_000)], ["940", "124k", "1.2M"]);
    }

    #[test]
    fn seconds_are_counted_when_they_are_over() {
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        assert_eq!(seconds_between(time("2026-11-17T14:05:00.9Z"), time("2026-11-17T14:05:01.1Z")), 0);
        assert_eq!(seconds_between(time("2026-11-17T14:05:00Z"), time("2026-11-17T14:05:01Z")), 1);
        assert_eq!(seconds_between(time("2026-11-17T14:05:01Z"), time("2026-11-17T14:05:00Z")), 0);
    }

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
        assert_eq!(seconds(SignedDuration::from_millis(6_400)).as_deref(), Some("6 s"));
        assert_eq!(seconds(SignedDuration::from_millis(400)), None);
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
