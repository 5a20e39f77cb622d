//! Durations as Compose takes them, which is neither as this project nor as Go itself does: days and weeks are units, and a number
//! without one is refused.
//!
//! Measured with Compose 2.40.3, which reads them with str2duration; `tests/it/compose.rs` holds every spelling to it.

use std::time::Duration;

/// Why a text is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// A number alone: seconds or milliseconds is anybody's guess.
    NoUnit,
    /// Less than nothing; Compose takes it, and then it means nothing.
    Negative,
    /// Anything else.
    Other,
}

const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("w", 604_800_000_000_000),
];

/// The longest that Go's own durations hold.
const LONGEST: u64 = i64::MAX as u64;

/// Reads a duration.
pub(super) fn parse(text: &str) -> Result<Duration, Fault> {
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(Fault::Other);
    }
    let mut nanos: u64 = 0;
    while !rest.is_empty() {
        let (number, after) = leading(rest)?;
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        if end == 0 {
            return Err(Fault::NoUnit);
        }
        let unit = UNITS.iter().find(|(name, _)| *name == &after[..end]).ok_or(Fault::Other)?.1;
        let whole = number.whole.checked_mul(unit).ok_or(Fault::Other)?;
        // In floating point as Go does it, so that not one nanosecond differs.
        let part = (number.part as f64 * (unit as f64 / number.scale)) as u64;
        nanos = nanos.checked_add(whole).and_then(|sum| sum.checked_add(part)).ok_or(Fault::Other)?;
        if nanos > LONGEST {
            return Err(Fault::Other);
        }
        rest = &after[end..];
    }
    if negative && nanos > 0 { Err(Fault::Negative) } else { Ok(Duration::from_nanos(nanos)) }
}

struct Number {
    whole: u64,
    part: u64,
    scale: f64,
}

/// Digits, perhaps a point, perhaps digits; one digit at least.
fn leading(text: &str) -> Result<(Number, &str), Fault> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let before = digits(text);
    let whole = if before == 0 { 0 } else { text[..before].parse().map_err(|_| Fault::Other)? };
    let mut number = Number { whole, part: 0, scale: 1.0 };
    let rest = &text[before..];
    let Some(after) = rest.strip_prefix('.') else {
        return if before == 0 { Err(Fault::Other) } else { Ok((number, rest)) };
    };
    let count = digits(after);
    if before == 0 && count == 0 {
        return Err(Fault::Other);
    }
    for digit in after[..count].bytes() {
        // Digits that no longer fit change nothing.
        if number.part > LONGEST / 10 {
            break;
        }
        number.part = number.part * 10 + u64::from(digit - b'0');
        number.scale *= 10.0;
    }
    Ok((number, &after[count..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_spelling_is_what_compose_made_of_it() {
        let millis = |millis| Ok(Duration::from_millis(millis));
        #[rustfmt::skip]
        let rows = [
            ("90s", millis(90_000)), ("1m30s", millis(90_000)), ("2h", millis(7_200_000)), ("1.5s", millis(1500)),
            ("100ms", millis(100)), ("10us", Ok(Duration::from_micros(10))), ("10\u{b5}s", Ok(Duration::from_micros(10))),
            ("10\u{3bc}s", Ok(Duration::from_micros(10))), ("5ns", Ok(Duration::from_nanos(5))), ("0s", millis(0)), ("0", millis(0)),
            ("1d", millis(86_400_000)), ("1w", millis(604_800_000)), ("2d3h", millis(183_600_000)), ("+5s", millis(5000)),
            (".5s", millis(500)), ("5.s", millis(5000)), ("1s500ms", millis(1500)), ("1m1m", millis(120_000)),
            ("1s1h", millis(3_601_000)), ("1.0000000001s", millis(1000)), ("1.s5ms", millis(1005)), ("01s", millis(1000)),
            ("9223372036s", millis(9_223_372_036_000)), ("1w2d3h4m5s6ms7us8ns", Ok(Duration::from_nanos(788_645_006_007_008))),
            ("90", Err(Fault::NoUnit)), ("1h1", Err(Fault::NoUnit)), ("-5s", Err(Fault::Negative)), ("", Err(Fault::Other)),
            (" 5s", Err(Fault::Other)), ("1s ", Err(Fault::Other)), ("1h 30m", Err(Fault::Other)), ("1e3s", Err(Fault::Other)),
            ("5S", Err(Fault::Other)), ("5min", Err(Fault::Other)), ("s", Err(Fault::Other)), (".s", Err(Fault::Other)),
            ("9223372037s", Err(Fault::Other)), ("99999999h", Err(Fault::Other)), ("1_000s", Err(Fault::Other)),
            ("99999999999999999999s", Err(Fault::Other)),
        ];
        for (text, expected) in rows {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-+.0-9a-zµ ]{0,30}|\\PC{0,12}") {
            prop_assert!(parse(&text).is_err() || !text.is_empty());
        }
    }
}
