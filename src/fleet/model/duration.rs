//! Durations as people write them, where a number needs a unit, and moments.

use std::time::{Duration, UNIX_EPOCH};

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DurationError {
    message: String,
}

/// Reads `15s`, `2m30s`, `500ms`, `0s`; a number without a unit is an error that says how to write it.
///
/// # Errors
/// When the text is empty, has no unit, or has one that is not known.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let trimmed = text.trim();
    if !trimmed.is_empty() && trimmed.bytes().all(|b| b.is_ascii_digit()) {
        return Err(DurationError { message: format!("`{trimmed}` has no unit; write `{trimmed}s` or `{trimmed}ms`") });
    }
    humantime::parse_duration(trimmed).map_err(|e| DurationError {
        message: format!("`{text}` is no duration ({e}); write it like `15s` or `2m30s`"),
    })
}

/// Writes a duration the way it is read, to the millisecond: `2m30s`, `1.25s`, `0s`.
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let (minutes, rest) = (millis / 60_000, millis % 60_000);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    let mut out = String::new();
    if hours > 0 {
        out.push_str(&format!("{hours}h"));
    }
    if minutes > 0 {
        out.push_str(&format!("{minutes}m"));
    }
    if rest > 0 || out.is_empty() {
        let seconds = rest / 1000;
        let fraction = rest % 1000;
        if fraction == 0 {
            out.push_str(&format!("{seconds}s"));
        } else {
            let digits = format!("{fraction:03}");
            out.push_str(&format!("{seconds}.{}s", digits.trim_end_matches('0')));
        }
    }
    out
}

/// The last second that RFC 3339 can write.
pub const LAST_MOMENT: u64 = 253_402_300_799;

/// Writes a moment, in seconds since the epoch: `2026-12-01T08:00:00Z`. Whatever stands in a record can be shown.
#[must_use]
pub fn show_moment(epoch: u64) -> String {
    if epoch > LAST_MOMENT {
        return "the year 10000 or later".to_owned();
    }
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(epoch)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_seconds_can_be_shown() {
        assert_eq!(show_moment(0), "1970-01-01T00:00:00Z");
        assert_eq!(show_moment(LAST_MOMENT), "9999-12-31T23:59:59Z");
        for epoch in [LAST_MOMENT + 1, u64::MAX] {
            assert_eq!(show_moment(epoch), "the year 10000 or later");
        }
    }

    #[test]
    fn a_number_without_a_unit_is_refused_with_the_way_to_write_it() {
        let error = parse_duration("15").expect_err("no unit");
        assert!(error.to_string().contains("write `15s`"), "{error}");
    }

    #[test]
    fn what_is_shown_means_the_same_when_read_again_for_whole_seconds() {
        for seconds in [0, 1, 59, 60, 61, 150, 3600, 3661, 86_399] {
            let duration = Duration::from_secs(seconds);
            assert_eq!(parse_duration(&show_duration(duration)), Ok(duration), "{seconds}");
        }
    }

    #[test]
    fn fractions_are_shown_without_trailing_zeros() {
        assert_eq!(show_duration(Duration::from_millis(1250)), "1.25s");
        assert_eq!(show_duration(Duration::from_millis(150_000)), "2m30s");
    }
}
