//! The AWS query protocol: what a form says, with lists as `Name.member.N.Field`.

use std::collections::BTreeMap;

/// A request to the API.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    /// Reads a form body.
    pub(super) fn parse(body: &str) -> Self {
        let pairs = body.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(k, v)| (decode(k), decode(v))).collect(),
        )
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A list of texts, in the order of their numbers.
    pub(super) fn list(&self, name: &str) -> Vec<&str> {
        let mut items = self.objects(name);
        items.retain(|item| item.contains_key(""));
        items.into_iter().filter_map(|item| item.get("").copied()).collect()
    }

    /// A list of structures: each field by its name; a plain text has the empty name.
    pub(super) fn objects(&self, name: &str) -> Vec<BTreeMap<&str, &str>> {
        let prefix = format!("{name}.member.");
        let mut items: BTreeMap<u32, BTreeMap<&str, &str>> = BTreeMap::new();
        for (key, value) in &self.0 {
            let Some(rest) = key.strip_prefix(&prefix) else { continue };
            let (number, field) = rest.split_once('.').unwrap_or((rest, ""));
            let Ok(number) = number.parse() else { continue };
            items.entry(number).or_default().insert(field, value);
        }
        items.into_values().collect()
    }
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match (bytes[at], hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (_, Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (b'+', None) => out.push(b' '),
            (byte, None) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_in_the_order_of_their_numbers_and_escapes_are_undone() {
        let query = Query::parse("Action=X&Names.member.10=j&Names.member.2=b+c&Names.member.1=a%3A%2F");
        assert_eq!(query.get("Action"), Some("X"));
        assert_eq!(query.list("Names"), ["a:/", "b c", "j"]);
    }

    #[test]
    fn structures_keep_their_fields() {
        let query = Query::parse("Targets.member.1.Id=i-1&Targets.member.1.Port=80&Targets.member.2.Id=i-2");
        let targets = query.objects("Targets");
        assert_eq!(targets.len(), 2);
        assert_eq!((targets[0]["Id"], targets[0]["Port"]), ("i-1", "80"));
        assert_eq!(targets[1].get("Port"), None);
    }

    #[test]
    fn a_broken_escape_is_taken_as_it_stands() {
        assert_eq!(decode("%zz%4"), "%zz%4");
    }
}
