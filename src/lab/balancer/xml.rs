//! The XML that the ELBv2 API answers with. The Rust SDK insists on `<ActionResponse>` with `<ActionResult>` as its first
//! child, and on `<Error>` directly below `<ErrorResponse>`.

use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};
use std::io;

const NAMESPACE: &str = "http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/";

/// An element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    /// With text in it.
    Text(&'static str, String),
    /// With elements in it.
    Branch(&'static str, Vec<Self>),
}

pub(super) fn text(name: &'static str, value: impl ToString) -> Node {
    Node::Text(name, value.to_string())
}

pub(super) fn branch(name: &'static str, children: Vec<Node>) -> Node {
    Node::Branch(name, children)
}

/// A list, each of its members a structure.
pub(super) fn list(name: &'static str, members: impl IntoIterator<Item = Vec<Node>>) -> Node {
    branch(name, members.into_iter().map(|member| branch("member", member)).collect())
}

/// A list of plain texts.
pub(super) fn texts(name: &'static str, members: impl IntoIterator<Item = String>) -> Node {
    branch(name, members.into_iter().map(|member| text("member", member)).collect())
}

/// The answer to an action.
pub(super) fn response(action: &str, result: &[Node], request_id: &str) -> io::Result<String> {
    let mut writer = Writer::new(Vec::new());
    inside(&mut writer, &format!("{action}Response"), true, |writer| {
        inside(writer, &format!("{action}Result"), false, |writer| {
            result.iter().try_for_each(|node| write(writer, node))
        })?;
        write(writer, &branch("ResponseMetadata", vec![text("RequestId", request_id)]))
    })?;
    utf8(writer)
}

/// A refusal.
pub(super) fn error(kind: &str, code: &str, message: &str, request_id: &str) -> io::Result<String> {
    let mut writer = Writer::new(Vec::new());
    inside(&mut writer, "ErrorResponse", true, |writer| {
        write(writer, &branch("Error", vec![text("Type", kind), text("Code", code), text("Message", message)]))?;
        write(writer, &text("RequestId", request_id))
    })?;
    utf8(writer)
}

fn write(writer: &mut Writer<Vec<u8>>, node: &Node) -> io::Result<()> {
    match node {
        Node::Text(name, value) => {
            inside(writer, name, false, |writer| writer.write_event(Event::Text(BytesText::new(value))))
        }
        Node::Branch(name, children) => {
            inside(writer, name, false, |writer| children.iter().try_for_each(|node| write(writer, node)))
        }
    }
}

fn inside(
    writer: &mut Writer<Vec<u8>>,
    name: &str,
    root: bool,
    content: impl FnOnce(&mut Writer<Vec<u8>>) -> io::Result<()>,
) -> io::Result<()> {
    let mut start = BytesStart::new(name);
    if root {
        start.push_attribute(("xmlns", NAMESPACE));
    }
    writer.write_event(Event::Start(start))?;
    content(writer)?;
    writer.write_event(Event::End(BytesEnd::new(name)))
}

fn utf8(writer: Writer<Vec<u8>>) -> io::Result<String> {
    String::from_utf8(writer.into_inner()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_is_the_first_child_even_when_it_is_empty() {
        let xml = response("RegisterTargets", &[], "r-1").expect("writes");
        assert!(xml.starts_with("<RegisterTargetsResponse xmlns="), "{xml}");
        assert!(xml.contains("><RegisterTargetsResult></RegisterTargetsResult><ResponseMetadata>"), "{xml}");
    }

    #[test]
    fn text_is_escaped_and_an_error_has_its_code_where_the_sdk_looks() {
        let xml = error("Sender", "ValidationError", "a < b & c", "r-1").expect("writes");
        let wanted =
            "<Error><Type>Sender</Type><Code>ValidationError</Code><Message>a &lt; b &amp; c</Message></Error>";
        assert!(xml.contains(wanted), "{xml}");
    }
}
