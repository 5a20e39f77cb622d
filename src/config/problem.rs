//! What is wrong with a file and where: one value for the terminal, for a plain line and for JSON.
//!
//! It may know no key and no meaning; it only draws what others found.

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde::Serialize;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A text that was read, under the name a person knows it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The path as it was given.
    pub name: String,
    /// Its whole text; empty where it could not be read.
    pub text: String,
}

impl Source {
    /// Takes a name and a text.
    #[must_use]
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { name: name.into(), text: text.into() })
    }
}

/// A stretch of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Where it lies.
    pub source: Arc<Source>,
    /// Its bytes.
    pub span: Range<usize>,
}

impl Place {
    /// The stretch `span` of `source`, moved to where characters begin and end.
    #[must_use]
    pub fn new(source: &Arc<Source>, span: Range<usize>) -> Self {
        let start = floor(&source.text, span.start);
        let end = floor(&source.text, span.end.max(start)).max(start);
        Self { source: Arc::clone(source), span: start..end }
    }

    /// Line and column of its beginning, both from 1, the column in characters.
    #[must_use]
    pub fn position(&self) -> (usize, usize) {
        let before = self.source.text.get(..self.span.start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.matches('\n').count() + 1;
        (line, before.get(line_start..).unwrap_or_default().chars().count() + 1)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.position();
        write!(f, "{}:{line}:{column}", self.source.name)
    }
}

fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Whether the file is refused for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file is taken; a person should look.
    Warning,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Whether the file is refused for it.
    pub severity: Severity,
    /// Where.
    pub place: Place,
    /// What, in one sentence.
    pub text: String,
    /// What stands beside the marked stretch; may be empty.
    pub label: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Another place that has to do with it, and what it is.
    pub second: Option<(Place, String)>,
}

/// A problem as one flat record, for JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProblemLine {
    /// The file's name.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Problem {
    /// An error at `place`.
    #[must_use]
    pub fn new(place: &Place, text: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            place: place.clone(),
            text: text.into(),
            label: String::new(),
            hint: None,
            second: None,
        }
    }

    /// With a word beside the marked stretch.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// With what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With another place.
    #[must_use]
    pub fn second(mut self, place: &Place, label: impl Into<String>) -> Self {
        self.second = Some((place.clone(), label.into()));
        self
    }

    /// As a warning.
    #[must_use]
    pub fn warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    /// `FILE:LINE:COLUMN: what is wrong`, for plain output.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{}: {}", self.place, self.text)
    }

    /// As a flat record.
    #[must_use]
    pub fn to_line(&self) -> ProblemLine {
        let (line, column) = self.place.position();
        ProblemLine {
            file: self.place.source.name.clone(),
            line,
            column,
            message: self.text.clone(),
            hint: self.hint.clone(),
        }
    }

    /// Drawn with the line it is about.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(self.text.as_str()));
        let source = &self.place.source;
        if source.text.is_empty() {
            group = group.element(Origin::path(source.name.as_str()));
        } else {
            group = group.element(self.snippet());
        }
        if let Some((place, label)) = &self.second
            && place.source != *source
            && !place.source.text.is_empty()
        {
            group = group.element(
                Snippet::source(place.source.text.as_str())
                    .path(place.source.name.as_str())
                    .annotation(AnnotationKind::Context.span(place.span.clone()).label(label.as_str())),
            );
        }
        if let Some(hint) = &self.hint {
            group = group.element(Level::HELP.message(hint.as_str()));
        }
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        renderer.render(&[group])
    }

    fn snippet(&self) -> Snippet<'_, annotate_snippets::Annotation<'_>> {
        let mut primary = AnnotationKind::Primary.span(self.place.span.clone());
        if !self.label.is_empty() {
            primary = primary.label(self.label.as_str());
        }
        let mut snippet =
            Snippet::source(self.place.source.text.as_str()).path(self.place.source.name.as_str()).annotation(primary);
        if let Some((place, label)) = &self.second
            && place.source == self.place.source
        {
            snippet = snippet.annotation(AnnotationKind::Context.span(place.span.clone()).label(label.as_str()));
        }
        snippet
    }
}

/// Everything that is wrong, in the order of the files; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Sorts what was found; `None` when nothing was.
    #[must_use]
    pub fn of(mut list: Vec<Problem>, first_file: &str) -> Option<Self> {
        list.sort_by(|a, b| {
            let key =
                |p: &Problem| (p.place.source.name != first_file, p.place.source.name.clone(), p.place.span.start);
            key(a).cmp(&key(b))
        });
        list.dedup();
        if list.is_empty() { None } else { Some(Self(list)) }
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Each as a flat record.
    #[must_use]
    pub fn to_lines(&self) -> Vec<ProblemLine> {
        self.0.iter().map(Problem::to_line).collect()
    }

    /// All of them drawn, an empty line between two.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        let drawn: Vec<String> = self.0.iter().map(|problem| problem.render(colour)).collect();
        drawn.join("\n\n")
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Problems {}
