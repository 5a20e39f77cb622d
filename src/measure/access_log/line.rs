//! One line of a log to the few fields that matter, borrowed from it. Knows how the fields are written, not what they mean.
//!
//! AWS user guide (load-balancer-access-logs): fields are delimited by spaces, strings stand in double quotes, new fields are added
//! at the end, and those that were not expected are to be ignored. A quote inside of a string is written `\x22`, so a closing quote
//! is followed by a space or by nothing. What departs from this is broken and told, never guessed at.

use super::clean::clean;
use super::time;
use memchr::{memchr, memchr2};
use std::fmt;

/// The first ALB logs (2016) ended with `target_group_arn`; a line with less was cut off.
const LEAST: usize = 17;
/// From so many fields on, all that is looked at is there.
pub(super) const ENOUGH: usize = 23;

/// The names of the fields that are looked at, as the user guide has them.
const NAMES: [(usize, &str); 11] = [
    (2, "time"),
    (5, "target:port"),
    (6, "request_processing_time"),
    (7, "target_processing_time"),
    (8, "response_processing_time"),
    (9, "elb_status_code"),
    (10, "target_status_code"),
    (13, "request"),
    (22, "request_creation_time"),
    (23, "actions_executed"),
    (25, "error_reason"),
];

/// What a line says of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Record<'a> {
    /// How many fields the line has.
    pub fields: usize,
    /// When the balancer began to answer; of a WebSocket when it was closed.
    pub time: i64,
    /// When the request came; logs from before 2018 do not say so.
    pub created: Option<i64>,
    /// Which target was chosen.
    pub target: Option<&'a [u8]>,
    /// The request, target and response processing times in microseconds; none where the log has -1.
    pub took: [Option<i64>; 3],
    /// What the client got.
    pub status: Option<u16>,
    /// What the target answered.
    pub target_status: Option<u16>,
    /// The request line.
    pub request: &'a [u8],
    /// What the rules did; older logs do not say so.
    pub actions: Option<&'a [u8]>,
    /// Why a Lambda function, an authentication or a weighted group failed.
    pub error_reason: &'a [u8],
}

impl<'a> Record<'a> {
    /// When the request came. Where the log does not say so: `time` less what the processing took.
    #[must_use]
    pub fn came(&self) -> i64 {
        self.created.unwrap_or_else(|| self.time - self.took.iter().flatten().sum::<i64>())
    }

    /// The method of the request.
    #[must_use]
    pub fn method(&self) -> &'a [u8] {
        self.request.split(|byte| *byte == b' ').next().unwrap_or_default()
    }

    /// The path alone: a query string may hold secrets, and so may what follows a semicolon.
    #[must_use]
    pub fn path(&self) -> &'a [u8] {
        let url = self.request.splitn(2, |byte| *byte == b' ').nth(1).unwrap_or_default();
        let head_ends = |text: &[u8]| text.iter().position(|byte| b"/?;# ".contains(byte)).unwrap_or(text.len());
        let at = head_ends(url);
        let authority = url[at..].strip_prefix(b"//").filter(|_| url[..at].ends_with(b":")).unwrap_or(url);
        let path = &authority[head_ends(authority)..];
        if !path.starts_with(b"/") {
            return &[];
        }
        let end = path.iter().position(|byte| matches!(byte, b'?' | b';' | b'#' | b' ')).unwrap_or(path.len());
        &path[..end]
    }
}

/// Why a line cannot be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken<'a> {
    /// Fewer fields than any ALB ever wrote.
    TooShort(usize),
    /// Fewer fields than the lines before it have, and one that matters is missing.
    CutOff {
        /// So many.
        fields: usize,
        /// The lines before it.
        before: usize,
    },
    /// The closing quote of this field is missing, or more follows it.
    Unclosed(usize),
    /// A quote within a field that does not begin with one.
    Stray(usize),
    /// Two spaces in a row.
    Empty(usize),
    /// The request does not stand in quotes.
    Unquoted(usize),
    /// A field holds what it never holds.
    Wrong(usize, &'a [u8]),
    /// Longer than this many bytes.
    TooLong(usize),
}

impl fmt::Display for Broken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooShort(fields) => write!(f, "{fields} fields, where an ALB writes at least {LEAST}"),
            Self::CutOff { fields, before } => {
                write!(f, "{fields} fields, where lines before it have {before}: it was cut off")
            }
            Self::Unclosed(field) => write!(f, "{}: its quotes do not close", name(field)),
            Self::Stray(field) => write!(f, "{}: a quote in the middle", name(field)),
            Self::Empty(field) => write!(f, "{}: nothing there", name(field)),
            Self::Unquoted(field) => write!(f, "{}: not in quotes", name(field)),
            // In a line of another kind anything may stand here, a URL with its query string, too.
            Self::Wrong(field, found) => {
                let end = found.iter().position(|byte| matches!(byte, b'?' | b';')).unwrap_or(found.len());
                let hidden = if end < found.len() { "..." } else { "" };
                write!(f, "{}: cannot be `{}{hidden}`", name(field), clean(&found[..end], 40))
            }
            Self::TooLong(most) => write!(f, "longer than {most} bytes"),
        }
    }
}

fn name(field: usize) -> String {
    let known = NAMES.iter().find(|(number, _)| *number == field);
    known.map_or_else(|| format!("field {field}"), |(_, name)| format!("field {field}, {name}"))
}

/// Reads a line, without its line end.
///
/// # Errors
/// When it is not what an ALB writes.
pub fn parse(line: &[u8]) -> Result<Record<'_>, Broken<'_>> {
    let mut fields = Fields { rest: line.trim_ascii_end(), number: 0 };
    let mut record = Record::default();
    while let Some(Field { text, quoted }) = fields.next()? {
        let number = fields.number;
        let wrong = Broken::Wrong(number, text);
        match number {
            2 => record.time = time::parse(text).ok_or(wrong)?,
            5 => record.target = target(text).ok_or(wrong)?,
            6..=8 => record.took[number - 6] = seconds(text).ok_or(wrong)?,
            9 => record.status = status(text).ok_or(wrong)?,
            10 => record.target_status = status(text).ok_or(wrong)?,
            13 if !quoted => return Err(Broken::Unquoted(number)),
            13 => record.request = text,
            22 if text != b"-" => record.created = Some(time::parse(text).ok_or(wrong)?),
            23 => record.actions = Some(text),
            25 => record.error_reason = text,
            _ => {}
        }
    }
    record.fields = fields.number;
    if record.fields < LEAST { Err(Broken::TooShort(record.fields)) } else { Ok(record) }
}

struct Field<'a> {
    text: &'a [u8],
    quoted: bool,
}

struct Fields<'a> {
    rest: &'a [u8],
    /// Of the field that was read last.
    number: usize,
}

impl<'a> Fields<'a> {
    fn next(&mut self) -> Result<Option<Field<'a>>, Broken<'a>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        if let Some(inside) = self.rest.strip_prefix(b"\"") {
            let end = memchr(b'"', inside).ok_or(Broken::Unclosed(self.number))?;
            self.rest = match &inside[end + 1..] {
                [] => &[],
                [b' ', rest @ ..] => rest,
                _ => return Err(Broken::Unclosed(self.number)),
            };
            return Ok(Some(Field { text: &inside[..end], quoted: true }));
        }
        let (text, rest) = match memchr2(b' ', b'"', self.rest) {
            Some(at) if self.rest[at] == b'"' => return Err(Broken::Stray(self.number)),
            Some(at) => (&self.rest[..at], &self.rest[at + 1..]),
            None => (self.rest, &[][..]),
        };
        self.rest = rest;
        if text.is_empty() { Err(Broken::Empty(self.number)) } else { Ok(Some(Field { text, quoted: false })) }
    }
}

/// `-`, or an address with a port; IPv6 with brackets or without.
fn target(text: &[u8]) -> Option<Option<&[u8]>> {
    if text == b"-" {
        return Some(None);
    }
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b':' | b'[' | b']' | b'%' | b'-');
    // An address begins with neither `-` nor `%`, and a spreadsheet takes what does for a formula.
    let begins = text.first().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'[');
    (begins && text.len() <= 64 && memchr(b':', text).is_some_and(|at| at > 0) && text.iter().all(fits))
        .then_some(Some(text))
}

/// Seconds with a fraction; -1 and `-` are none.
fn seconds(text: &[u8]) -> Option<Option<i64>> {
    if matches!(text, b"-" | b"-1" | b"-1.0" | b"-1.000") {
        return Some(None);
    }
    let (mut micros, mut scale, mut point) = (0i64, 1_000_000i64, false);
    for &byte in text {
        match byte {
            b'.' if !point => point = true,
            b'0'..=b'9' if point => {
                scale /= 10;
                micros += i64::from(byte - b'0') * scale;
            }
            // Ten digits of seconds are three hundred years.
            b'0'..=b'9' if micros < 1_000_000_000_000_000 => micros = micros * 10 + i64::from(byte - b'0') * scale,
            _ => return None,
        }
    }
    text.first().is_some_and(u8::is_ascii_digit).then_some(Some(micros))
}

/// A status; `-` where there is none. 000 is one: the balancer ended an HTTP/2 connection.
fn status(text: &[u8]) -> Option<Option<u16>> {
    if text == b"-" {
        return Some(None);
    }
    let digits = (1..=3).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    digits.then(|| Some(text.iter().fold(0, |status, digit| status * 10 + u16::from(digit - b'0'))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WHOLE: &str = r#"https 2026-11-29T12:00:04.500000Z app/shop/0123456789abcdef 192.0.2.7:40001 198.51.100.1:8080 0.001 4.205 -1 502 - 120 277 "GET https://shop.example:443/cart?token=secret HTTP/1.1" "a \x22quoted\x22 agent" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:eu-central-1:111122223333:targetgroup/shop/0123456789abcdef "Root=1-0-0" "shop.example" "session-reused" 10 2026-11-29T12:00:00.294000Z "waf,forward" "-" "-" "198.51.100.1:8080 198.51.100.2:8080" "502 -" "-" "-" TID_0 "-" "-" "-" 203.0.113.9 "and more""#;

    #[test]
    fn a_line_is_read_field_by_field() {
        let record = parse(WHOLE.as_bytes()).expect("a line");
        assert_eq!(record.fields, 35);
        assert_eq!(record.target, Some(&b"198.51.100.1:8080"[..]));
        assert_eq!(record.took, [Some(1000), Some(4_205_000), None]);
        assert_eq!((record.status, record.target_status), (Some(502), None));
        assert_eq!((record.method(), record.path()), (&b"GET"[..], &b"/cart"[..]));
        assert_eq!(record.actions, Some(&b"waf,forward"[..]));
        assert_eq!(record.came(), time::parse(b"2026-11-29T12:00:00.294Z").expect("a moment"));
    }

    #[test]
    fn without_a_creation_time_it_is_counted_back_from_the_answer() {
        let early: Vec<&str> = WHOLE.split(" \"Root").collect();
        let record = parse(early[0].as_bytes()).expect("a line of 2016");
        assert_eq!((record.fields, record.created, record.actions), (17, None, None));
        assert_eq!(record.came(), time::parse(b"2026-11-29T12:00:00.294Z").expect("a moment"));
    }

    #[test]
    fn what_is_wrong_with_a_line_is_told_by_field() {
        let rows = [
            ("http 2026-11-29T12:00:00Z app", "3 fields, where an ALB writes at least 17"),
            ("http yesterday", "field 2, time: cannot be `yesterday`"),
            ("http \u{1b}[31m", "field 2, time: cannot be `\\x1B[31m`"),
            ("http  2026-11-29T12:00:00Z", "field 2, time: nothing there"),
            ("ht\"tp x", "field 1: a quote in the middle"),
            ("\"http x", "field 1: its quotes do not close"),
            ("\"http\"x", "field 1: its quotes do not close"),
            (&WHOLE.replace("8080 0.001", "8080 0.0x1"), "field 6, request_processing_time: cannot be `0.0x1`"),
            (&WHOLE.replace(" 502 ", " 5020 "), "field 9, elb_status_code: cannot be `5020`"),
            ("GET https://shop.example/cart?token=secret", "field 2, time: cannot be `https://shop.example/cart...`"),
            (&WHOLE.replace("198.51.100.1:8080 0", "-A1:8080 0"), "field 5, target:port: cannot be `-A1:8080`"),
            (&WHOLE.replace("198.51.100.1:8080 0", "=cmd() 0"), "field 5, target:port: cannot be `=cmd()`"),
            (
                &WHOLE.replace("11-29T12:00:00.294", "11-29T12:00:00.29A"),
                "field 22, request_creation_time: cannot be `2026-11-29T12:00:00.29A000Z`",
            ),
            (&WHOLE.replace("\"GET https", "GET \"https"), "field 13, request: not in quotes"),
            (&WHOLE.replace("a \\x22", "a \""), "field 14: its quotes do not close"),
        ];
        for (line, what) in rows {
            assert_eq!(parse(line.as_bytes()).expect_err(line).to_string(), what, "{line}");
        }
    }

    #[test]
    fn a_path_is_told_without_what_may_be_secret() {
        let path = |request: &str| {
            let request = request.as_bytes();
            String::from_utf8_lossy(Record { request, ..Record::default() }.path()).into_owned()
        };
        assert_eq!(path("GET http://user:pass@shop.example:80/a/b?c=/d HTTP/1.1"), "/a/b");
        assert_eq!(path("GET https://shop.example:443/a;jsessionid=1 HTTP/1.1"), "/a");
        assert_eq!(path("GET http://[2001:db8::1]:80/ HTTP/2.0"), "/");
        assert_eq!(path("GET http://shop.example:80?x=/y HTTP/1.1"), "");
        assert_eq!(path("GET /login?next=https://shop.example/secret HTTP/1.1"), "/login");
        assert_eq!(path("GET https://shop.example HTTP/1.1"), "");
        assert_eq!(path("- http://shop.example:80- -"), "");
        assert_eq!(path("-"), "");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Err(broken) = parse(&bytes) {
                prop_assert!(broken.to_string().bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()));
            }
        }

        #[test]
        fn no_change_of_a_byte_makes_it_panic(at in 0..WHOLE.len(), byte in any::<u8>(), cut in 0..WHOLE.len()) {
            let mut line = WHOLE.as_bytes().to_vec();
            line[at] = byte;
            for line in [&line[..], &line[..cut], &line[cut..]] {
                std::hint::black_box(parse(line).map(|record| (record.came(), record.path(), record.method())).is_ok());
            }
        }
    }
}
