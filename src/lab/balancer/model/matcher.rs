//! Which statuses pass a health check, written the AWS way: `200`, `200,202`, `200-299`.

use std::fmt;

/// The statuses that pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matcher {
    ranges: Vec<(u16, u16)>,
    text: String,
}

impl Default for Matcher {
    fn default() -> Self {
        Self { ranges: vec![(200, 200)], text: "200".to_owned() }
    }
}

impl Matcher {
    /// Reads one; AWS allows 200 to 499 for an ALB, so that a 503 can never pass.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (from, to) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
            if from < 200 || to > 499 || from > to {
                return None;
            }
            ranges.push((from, to));
        }
        Some(Self { ranges, text: text.to_owned() })
    }

    /// Whether a status passes.
    #[must_use]
    pub fn passes(&self, status: u16) -> bool {
        self.ranges.iter().any(|(from, to)| (*from..=*to).contains(&status))
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_pass_what_they_name_and_503_is_refused() {
        let matcher = Matcher::parse("200,301-302").expect("reads");
        assert!(matcher.passes(200) && matcher.passes(302));
        assert!(!matcher.passes(201));
        for text in ["503", "200-599", "", "x", "302-301"] {
            assert_eq!(Matcher::parse(text), None, "{text}");
        }
    }
}
