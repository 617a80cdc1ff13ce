//! Times, durations and quantities as people read them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Seconds between two times; 0 if they are in the wrong order.
pub fn seconds_between(start: Timestamp, end: Timestamp) -> u64 {
    u64::try_from(end.as_second() - start.as_second()).unwrap_or(0)
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

/// The time of day, with the day if it is another one: `14:05`, `12 Nov 09:31`.
pub fn of_day(time: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    let (time, now) = (time.to_zoned(zone.clone()), now.to_zoned(zone.clone()));
    let format = if time.date() == now.date() { "%H:%M" } else { "%-d %b %H:%M" };
    time.strftime(format).to_string()
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
    fn a_time_of_another_day_has_its_date() {
        let now: Timestamp = "2026-11-17T14:05:00Z".parse().unwrap();
        let earlier: Timestamp = "2026-11-12T09:31:00Z".parse().unwrap();
        assert_eq!(of_day(now, now, &TimeZone::UTC), "14:05");
        assert_eq!(of_day(earlier, now, &TimeZone::UTC), "12 Nov 09:31");
    }
}
