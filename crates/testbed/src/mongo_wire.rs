//! Just enough of MongoDB's wire protocol to form a replica set and to ask how
//! it is: one command, one connection, one answer. A driver would bring its own
//! runtime, pools and monitoring into every test of every crate.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const OP_MSG: i32 = 2013;
const HEADER_BYTES: usize = 16;
const ANSWER_BYTES_MAX: usize = 1 << 20;
const CONNECT_MAX: Duration = Duration::from_secs(1);
const ANSWER_MAX: Duration = Duration::from_secs(5);

pub(crate) type Document = Vec<(String, Value)>;

/// The few kinds of value that these commands use; others are skipped in answers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Int(i32),
    Long(i64),
    Double(f64),
    Bool(bool),
    Text(String),
    Document(Document),
    Array(Vec<Value>),
}

/// No good answer; the code is the server's, if there was one.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: Option<i32>,
}

#[derive(Debug)]
pub(crate) struct Hello {
    pub(crate) is_primary: bool,
    pub(crate) is_secondary: bool,
}

pub(crate) fn document<const N: usize>(fields: [(&str, Value); N]) -> Document {
    fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// `None` when the member does not answer.
pub(crate) fn hello(address: SocketAddr) -> Option<Hello> {
    let answer = run(address, document([("hello", Value::Int(1))])).ok()?;
    let says = |name: &str| field(&answer, name) == Some(&Value::Bool(true));
    Some(Hello {
        is_primary: says("isWritablePrimary"),
        is_secondary: says("secondary"),
    })
}

/// Runs a command of the `admin` database.
pub(crate) fn run(address: SocketAddr, command: Document) -> Result<Document, Refusal> {
    run_in(address, "admin", command)
}

/// Runs a command of a database. A write that too few members witnessed is a refusal too.
pub(crate) fn run_in(
    address: SocketAddr,
    database: &str,
    mut command: Document,
) -> Result<Document, Refusal> {
    command.push(("$db".to_owned(), Value::Text(database.to_owned())));
    let answer = exchange(address, &command).map_err(|_| Refusal { code: None })?;
    let done = field(&answer, "ok") == Some(&Value::Double(1.0))
        && field(&answer, "writeConcernError").is_none();
    if done {
        return Ok(answer);
    }
    let code = match field(&answer, "code") {
        Some(Value::Int(code)) => Some(*code),
        _ => None,
    };
    Err(Refusal { code })
}

/// A number of an answer. The server's counts come as any of its three kinds.
pub(crate) fn number(document: &Document, name: &str) -> Option<i32> {
    match field(document, name)? {
        Value::Int(number) => Some(*number),
        Value::Long(number) => i32::try_from(*number).ok(),
        Value::Double(number) => Some(*number as i32),
        _ => None,
    }
}

pub(crate) fn text<'a>(document: &'a Document, name: &str) -> Option<&'a str> {
    match field(document, name)? {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

fn field<'a>(document: &'a Document, name: &str) -> Option<&'a Value> {
    document
        .iter()
        .find(|(field, _)| field == name)
        .map(|(_, value)| value)
}

fn exchange(address: SocketAddr, command: &Document) -> io::Result<Document> {
    let body = encode(command);
    let length = HEADER_BYTES + 5 + body.len();
    let mut message = Vec::with_capacity(length);
    // Length, request id, answered id, kind, then no flags and one section of kind 0.
    for number in [length as i32, 1, 0, OP_MSG, 0] {
        message.extend(number.to_le_bytes());
    }
    message.extend([&[0], &body[..]].concat());

    let mut stream = TcpStream::connect_timeout(&address, CONNECT_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    stream.write_all(&message)?;
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let length = i32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
    if !(HEADER_BYTES + 5..=ANSWER_BYTES_MAX).contains(&length) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut answer = vec![0; length - HEADER_BYTES];
    stream.read_exact(&mut answer)?;
    decode(&answer[5..]).ok_or(io::ErrorKind::InvalidData.into())
}

fn encode(document: &Document) -> Vec<u8> {
    let mut fields = Vec::new();
    for (name, value) in document {
        let (kind, bytes) = match value {
            Value::Double(number) => (0x01, number.to_le_bytes().to_vec()),
            Value::Text(text) => {
                let length = (text.len() as i32 + 1).to_le_bytes();
                (0x02, [&length, text.as_bytes(), &[0]].concat())
            }
            Value::Document(inner) => (0x03, encode(inner)),
            Value::Array(values) => {
                let numbered = values.iter().enumerate();
                (
                    0x04,
                    encode(
                        &numbered
                            .map(|(index, value)| (index.to_string(), value.clone()))
                            .collect(),
                    ),
                )
            }
            Value::Bool(flag) => (0x08, vec![u8::from(*flag)]),
            Value::Int(number) => (0x10, number.to_le_bytes().to_vec()),
            Value::Long(number) => (0x12, number.to_le_bytes().to_vec()),
        };
        fields.push(kind);
        fields.extend([name.as_bytes(), &[0]].concat());
        fields.extend(bytes);
    }
    [&(fields.len() as i32 + 5).to_le_bytes()[..], &fields, &[0]].concat()
}

/// The numbers and flags at the top of an answer, and which documents it holds.
fn decode(bytes: &[u8]) -> Option<Document> {
    let length =
        |at: usize| Some(i32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
    let mut document = Vec::new();
    let mut at = 4;
    loop {
        let kind = *bytes.get(at)?;
        if kind == 0 {
            return Some(document);
        }
        let name_end = at + 1 + bytes[at + 1..].iter().position(|byte| *byte == 0)?;
        let name = String::from_utf8_lossy(&bytes[at + 1..name_end]).into_owned();
        let start = name_end + 1;
        let size = match kind {
            0x01 | 0x09 | 0x11 | 0x12 => 8,
            0x02 => length(start)?.checked_add(4)?,
            0x03 | 0x04 => length(start)?,
            0x05 => length(start)?.checked_add(5)?,
            0x07 => 12,
            0x08 => 1,
            0x0A => 0,
            0x10 => 4,
            _ => return None,
        };
        let value = bytes.get(start..start.checked_add(size)?)?;
        let read = match kind {
            0x01 => Some(Value::Double(f64::from_le_bytes(value.try_into().ok()?))),
            0x02 => {
                // Its length before it, a zero behind it.
                let text = value.get(4..)?.strip_suffix(&[0])?;
                Some(Value::Text(String::from_utf8_lossy(text).into_owned()))
            }
            0x03 => Some(Value::Document(Vec::new())),
            0x08 => Some(Value::Bool(value[0] == 1)),
            0x10 => Some(Value::Int(i32::from_le_bytes(value.try_into().ok()?))),
            0x12 => Some(Value::Long(i64::from_le_bytes(value.try_into().ok()?))),
            _ => None,
        };
        document.extend(read.map(|value| (name, value)));
        at = start + size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_texts_and_flags_are_read_past_everything_else() {
        let written = document([
            ("ok", Value::Double(1.0)),
            ("text", Value::Text("ready".to_owned())),
            ("list", Value::Array(vec![Value::Int(1), Value::Bool(true)])),
            ("secondary", Value::Bool(true)),
            ("code", Value::Int(23)),
            ("count", Value::Long(1 << 40)),
        ]);
        let mut expected = written.clone();
        expected.retain(|(name, _)| name != "list");
        assert_eq!(decode(&encode(&written)), Some(expected));
    }

    #[test]
    fn a_cut_or_foreign_answer_is_no_answer() {
        let whole = encode(&document([
            ("text", Value::Text("ready".to_owned())),
            ("code", Value::Int(7)),
        ]));
        for end in 0..whole.len() {
            assert_eq!(decode(&whole[..end]), None, "cut at {end}");
        }
        assert_eq!(decode(b"HTTP/1.1 400 Bad Request"), None);
    }
}
