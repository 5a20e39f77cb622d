//! Files, folders and stdin to lines, in a buffer that does not grow. Knows nothing of fields; what cannot be read is told, not skipped.
//!
//! AWS user guide (load-balancer-access-logs): a node writes a file every 5 minutes, named
//! `ACCOUNT_elasticloadbalancing_REGION_app.NAME.ID_END_NODE-ADDRESS_RANDOM.log.gz`.

use super::clean::clean_path;
use super::line::Broken;
use super::tally::Tally;
use flate2::bufread::MultiGzDecoder;
use memchr::memchr;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufReader, Cursor, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The longest line that is read. A URL has 16 K and an agent 8 KB at most (user guide), each byte of them `\xNN` at worst.
const LONGEST: usize = 256 * 1024;
/// So many broken lines are shown.
const SHOWN: usize = 10;
/// What compressed data is read in.
const CHUNK: usize = 64 * 1024;
/// How many folders deep logs are looked for; S3 has them in ten.
const DEEP: usize = 32;

/// One thing to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Standard input.
    Stdin,
    /// A file, or what can be read like one.
    File(PathBuf),
}

impl Input {
    /// For people.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Stdin => "stdin".to_owned(),
            Self::File(path) => clean_path(path),
        }
    }

    fn open(&self) -> io::Result<Box<dyn Read>> {
        Ok(match self {
            Self::Stdin => Box::new(io::stdin().lock()),
            Self::File(path) => {
                let file = File::open(path)?;
                let data = file.metadata()?;
                // Packed, even nothing is longer: it was never fetched.
                if data.is_file() && data.len() == 0 && path.extension().is_some_and(|end| end == "gz") {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
                }
                Box::new(file)
            }
        })
    }
}

/// What is to be read.
#[derive(Debug, Default)]
pub struct Inputs {
    /// Each once.
    pub files: Vec<Input>,
    /// What is left out, and why.
    pub left_out: Vec<String>,
}

/// Finds the files behind the arguments: folders are searched for `*.log` and `*.gz`, `-` is stdin.
///
/// # Errors
/// Everything that is not there, at once.
pub fn inputs(paths: &[PathBuf]) -> Result<Inputs, Vec<String>> {
    let (mut found, mut missing) = (Inputs::default(), Vec::new());
    let mut seen = Seen::default();
    for path in paths {
        if path.as_os_str() == "-" {
            seen.add(Input::Stdin, &mut found);
            continue;
        }
        let listed = fs::metadata(path).and_then(|data| {
            if !data.is_dir() {
                return Ok(vec![path.clone()]);
            }
            let mut files = Vec::new();
            folder(path, DEEP, &mut files, &mut found.left_out)?;
            files.sort();
            if files.is_empty() { Err(io::Error::other("no *.log or *.gz in it")) } else { Ok(files) }
        });
        match listed {
            Ok(files) => files.into_iter().for_each(|file| seen.add(Input::File(file), &mut found)),
            Err(error) => missing.push(format!("{}: {error}", clean_path(path))),
        }
    }
    if missing.is_empty() { Ok(found) } else { Err(missing) }
}

fn folder(dir: &Path, deep: usize, files: &mut Vec<PathBuf>, left_out: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        let kind = entry.file_type()?;
        if kind.is_dir() && deep > 0 {
            folder(&path, deep - 1, files, left_out)?;
        } else if kind.is_dir() {
            left_out.push(format!("{}: too deep", clean_path(&path)));
        } else if fs::metadata(&path).is_ok_and(|data| !data.is_file()) {
            // A pipe that nobody writes to would be waited for without an end.
            left_out.push(format!("{}: no file", clean_path(&path)));
        } else if path.extension().is_some_and(|end| end == "log" || end == "gz") && !of_another_kind(&path) {
            files.push(path);
        } else {
            left_out.push(format!("{}: no access log by its name", clean_path(&path)));
        }
    }
    Ok(())
}

/// A bucket may hold the balancer's other logs too (user guide: load-balancer-connection-logs).
fn of_another_kind(path: &Path) -> bool {
    let name = file_name(path);
    name.starts_with("conn_log") || name.starts_with("health_check_log")
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Notices what is named twice.
#[derive(Default)]
struct Seen {
    stdin: bool,
    places: HashMap<(u64, u64), String>,
    names: HashMap<String, String>,
}

impl Seen {
    fn add(&mut self, input: Input, found: &mut Inputs) {
        let again = match &input {
            Input::Stdin => std::mem::replace(&mut self.stdin, true).then(|| "stdin".to_owned()),
            Input::File(path) => self.before(path, &input.name()),
        };
        match again {
            Some(first) => found.left_out.push(format!("{}: the same as {first}", input.name())),
            None => found.files.push(input),
        }
    }

    /// By its place on disk, or by a name of AWS, which ends in a random string; `gunzip -k` leaves both forms of it.
    fn before(&mut self, path: &Path, shown: &str) -> Option<String> {
        let data = fs::metadata(path).ok()?;
        let place = match self.places.entry((data.dev(), data.ino())) {
            Entry::Occupied(first) => return Some(first.get().clone()),
            Entry::Vacant(free) => free,
        };
        place.insert(shown.to_owned());
        let name = file_name(path);
        node(&name)?;
        match self.names.entry(name.trim_end_matches(".gz").to_owned()) {
            Entry::Occupied(first) => Some(first.get().clone()),
            Entry::Vacant(free) => {
                free.insert(shown.to_owned());
                None
            }
        }
    }
}

/// The node's address in a name of AWS, without the leading zeros that AWS's own example has.
fn node(name: &str) -> Option<String> {
    let (_, rest) = name.split_once("_elasticloadbalancing_")?;
    let address = rest.rsplit('_').nth(1)?;
    if address.contains(':') {
        return address.parse::<std::net::Ipv6Addr>().ok().map(|address| address.to_string());
    }
    let parts: Vec<u8> = address.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [a, b, c, d] = parts[..] else { return None };
    Some(format!("{a}.{b}.{c}.{d}"))
}

/// What was read of one file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct FileRead {
    /// Which.
    pub file: String,
    /// How many lines it has, blank ones aside.
    pub lines: u64,
    /// How many of them are broken.
    pub broken: u64,
    /// Why not all of it was read.
    pub error: Option<String>,
}

/// A broken line that is shown.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BrokenLine {
    /// In which file.
    pub file: String,
    /// The how manieth line of it.
    pub line: u64,
    /// What is wrong with it.
    pub what: String,
}

/// What was read.
#[derive(Debug, Default)]
pub struct Reading {
    /// Each file.
    pub files: Vec<FileRead>,
    /// The nodes that the files' names tell of.
    pub nodes: BTreeSet<String>,
    /// The first broken lines.
    pub shown: Vec<BrokenLine>,
    /// Files that begin with the same line, which has a request's own trace: they overlap.
    pub overlaps: Vec<String>,
}

impl Reading {
    /// How many lines there were.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.files.iter().map(|file| file.lines).sum()
    }

    /// How many of them are broken.
    #[must_use]
    pub fn broken(&self) -> u64 {
        self.files.iter().map(|file| file.broken).sum()
    }
}

/// Reads all inputs into the tally. A file that breaks off does not keep the others from being read.
pub fn read(inputs: &[Input], tally: &mut Tally) -> Reading {
    let mut reading = Reading::default();
    let mut buffer = vec![0; LONGEST];
    let mut begins: HashMap<u64, String> = HashMap::new();
    for input in inputs {
        if let Input::File(path) = input {
            reading.nodes.extend(node(&file_name(path)));
        }
        let mut one = OneFile::new(input.name(), tally, &mut reading.shown);
        let read =
            input.open().and_then(plain).and_then(|mut from| lines(&mut from, &mut buffer, |piece| one.take(piece)));
        one.read.error = read.err().map(|error| one.broke_off(&error));
        let (file, first) = (one.read, one.first);
        match first.map(|first| begins.entry(first)) {
            Some(Entry::Occupied(other)) => reading.overlaps.push(format!("{} and {}", other.get(), file.file)),
            Some(Entry::Vacant(free)) => drop(free.insert(file.file.clone())),
            None => {}
        }
        reading.files.push(file);
    }
    reading
}

/// Unpacks gzip, which is known by its first two bytes (RFC 1952) and not by a name.
fn plain(mut from: Box<dyn Read>) -> io::Result<Box<dyn Read>> {
    let mut begin = Vec::with_capacity(2);
    from.by_ref().take(2).read_to_end(&mut begin)?;
    let packed = begin == [0x1f, 0x8b];
    let whole = Cursor::new(begin).chain(from);
    Ok(if packed { Box::new(MultiGzDecoder::new(BufReader::with_capacity(CHUNK, whole))) } else { Box::new(whole) })
}

enum Piece<'a> {
    Line(&'a [u8]),
    TooLong,
}

/// Cuts what is read into lines. A line that does not fit the buffer is passed over without being kept.
fn lines(from: &mut dyn Read, buffer: &mut [u8], mut take: impl FnMut(Piece<'_>)) -> io::Result<()> {
    let (mut filled, mut passing_over) = (0, false);
    loop {
        let count = match from.read(&mut buffer[filled..]) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let (mut begin, mut search) = (0, filled);
        filled += count;
        while let Some(at) = memchr(b'\n', &buffer[search..filled]) {
            let end = search + at;
            if !std::mem::take(&mut passing_over) {
                take(Piece::Line(&buffer[begin..end]));
            }
            begin = end + 1;
            search = begin;
        }
        if count == 0 {
            if begin < filled && !passing_over {
                take(Piece::Line(&buffer[begin..filled]));
            }
            return Ok(());
        }
        buffer.copy_within(begin..filled, 0);
        filled -= begin;
        if passing_over {
            filled = 0;
        } else if filled == buffer.len() {
            take(Piece::TooLong);
            (filled, passing_over) = (0, true);
        }
    }
}

/// The lines of one file on their way to the tally.
struct OneFile<'a> {
    read: FileRead,
    tally: &'a mut Tally,
    shown: &'a mut Vec<BrokenLine>,
    /// Blank lines count here, so that an editor finds the place.
    number: u64,
    /// The most fields that a line had.
    fields: usize,
    first: Option<u64>,
}

impl<'a> OneFile<'a> {
    fn new(file: String, tally: &'a mut Tally, shown: &'a mut Vec<BrokenLine>) -> Self {
        let read = FileRead { file, lines: 0, broken: 0, error: None };
        Self { read, tally, shown, number: 0, fields: 0, first: None }
    }

    fn take(&mut self, piece: Piece<'_>) {
        self.number += 1;
        let text = match piece {
            Piece::Line(text) => text.strip_suffix(b"\r").unwrap_or(text),
            Piece::TooLong => {
                self.read.lines += 1;
                return self.broken(Broken::TooLong(LONGEST));
            }
        };
        if text.trim_ascii().is_empty() {
            return;
        }
        self.read.lines += 1;
        match self.tally.take(text, self.fields) {
            Ok(fields) => {
                self.fields = self.fields.max(fields);
                self.first.get_or_insert_with(|| hash(text));
            }
            Err(broken) => self.broken(broken),
        }
    }

    fn broken(&mut self, broken: Broken<'_>) {
        self.read.broken += 1;
        if self.shown.len() < SHOWN {
            self.shown.push(BrokenLine { file: self.read.file.clone(), line: self.number, what: broken.to_string() });
        }
    }

    fn broke_off(&self, error: &io::Error) -> String {
        match (error.kind(), self.number) {
            (io::ErrorKind::UnexpectedEof, 0) => "the gzip data ends too early; none of it was read".to_owned(),
            (io::ErrorKind::UnexpectedEof, lines) => {
                format!("the gzip data ends too early; what comes behind line {lines} is unknown")
            }
            (_, 0) => error.to_string(),
            (_, lines) => format!("{error}; what comes behind line {lines} is unknown"),
        }
    }
}

fn hash(line: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    line.hash(&mut hasher);
    hasher.finish()
}
