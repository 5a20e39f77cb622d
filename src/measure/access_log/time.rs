//! Moments as RFC 3339 writes them, in microseconds since 1970: the precision of the log, without an allocation a line.

/// Microseconds of a second.
const SECOND: i64 = 1_000_000;

/// Reads `2026-11-29T12:00:00.186641Z`: the fraction may be missing or longer, the zone may be an offset, but must be there.
#[must_use]
pub fn parse(text: &[u8]) -> Option<i64> {
    let (moment, rest) = text.split_at_checked(19)?;
    let &[y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1, b'T' | b't' | b' ', h0, h1, b':', n0, n1, b':', s0, s1] = moment
    else {
        return None;
    };
    let year = two(y0, y1)? * 100 + two(y2, y3)?;
    let (month, day) = (two(m0, m1)?, two(d0, d1)?);
    let (hour, minute, second) = (two(h0, h1)?, two(n0, n1)?, two(s0, s1)?);
    // RFC 3339 knows a 60th second; it is the first of the next minute here.
    if hour > 23
        || minute > 59
        || second > 60
        || !(1..=12).contains(&month)
        || !(1..=month_days(year, month)).contains(&day)
    {
        return None;
    }
    let (fraction, zone) = fraction(rest)?;
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset(zone)?;
    Some(seconds * SECOND + fraction)
}

/// Writes a moment in UTC; the fraction only where there is one.
#[must_use]
pub fn show(micros: i64) -> String {
    let (seconds, fraction) = (micros.div_euclid(SECOND), micros.rem_euclid(SECOND));
    let (day, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, date) = civil(day);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let fraction = if fraction == 0 { String::new() } else { format!(".{fraction:06}") };
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

fn digit(byte: u8) -> Option<i64> {
    byte.is_ascii_digit().then(|| i64::from(byte - b'0'))
}

fn two(tens: u8, ones: u8) -> Option<i64> {
    Some(digit(tens)? * 10 + digit(ones)?)
}

/// The microseconds behind a point, and what follows.
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(digits) = text.strip_prefix(b".") else { return Some((0, text)) };
    let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = digits.split_at(length);
    let micros = (0..6).fold(0, |micros, at| micros * 10 + digits.get(at).map_or(0, |digit| i64::from(digit - b'0')));
    (length > 0).then_some((micros, rest))
}

/// By how many seconds a zone is ahead of UTC.
fn offset(zone: &[u8]) -> Option<i64> {
    match *zone {
        [b'Z' | b'z'] => Some(0),
        [sign @ (b'+' | b'-'), h0, h1, b':', m0, m1] => {
            let (hours, minutes) = (two(h0, h1)?, two(m0, m1)?);
            let ahead = hours * 3600 + minutes * 60;
            (hours < 24 && minutes < 60).then_some(if sign == b'+' { ahead } else { -ahead })
        }
        _ => None,
    }
}

fn month_days(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970. The year begins in March, so that the leap day is its last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The other way round: year, month, day.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = (from_march + 2) % 12 + 1;
    (era * 400 + year + i64::from(month <= 2), month, of_year - (153 * from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn moments_are_read_as_rfc_3339_has_them() {
        let noon = Some(1_795_953_600 * SECOND);
        for same in [
            "2026-11-29T12:00:00Z",
            "2026-11-29t12:00:00z",
            "2026-11-29 12:00:00Z",
            "2026-11-29T13:00:00+01:00",
            "2026-11-29T06:30:00-05:30",
            "2026-11-29T11:59:60Z",
            "2026-11-29T12:00:00.0000009Z",
        ] {
            assert_eq!(parse(same.as_bytes()), noon, "{same}");
        }
        assert_eq!(parse(b"1970-01-01T00:00:00.5Z"), Some(SECOND / 2));
        assert_eq!(parse(b"2000-02-29T00:00:00.000001Z"), Some(951_782_400 * SECOND + 1));
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for wrong in [
            "",
            "-",
            "2026-11-29",
            "2026-11-29T12:00:00",
            "2026-02-29T12:00:00Z",
            "2026-13-01T12:00:00Z",
            "2026-00-01T12:00:00Z",
            "2026-11-31T12:00:00Z",
            "2026-11-29T24:00:00Z",
            "2026-11-29T12:60:00Z",
            "2026-11-29T12:00:61Z",
            "2026-11-29T12:00:00.Z",
            "2026-11-29T12:00:00+1:00",
            "2026-11-29T12:00:00+24:00",
            "2026-11-29T12:00:00Zx",
            "2100-02-29T00:00:00Z",
            "+026-11-29T12:00:00Z",
        ] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(micros in parse(b"0000-01-01T00:00:00Z").unwrap()..parse(b"9999-12-31T23:59:59Z").unwrap()) {
            prop_assert_eq!(parse(show(micros).as_bytes()), Some(micros));
        }

        #[test]
        fn days_and_dates_are_each_other_s_inverse(day in -700_000i64..3_000_000) {
            let (year, month, date) = civil(day);
            prop_assert_eq!(days(year, month, date), day);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            drop(parse(&bytes).map(show));
        }
    }
}
