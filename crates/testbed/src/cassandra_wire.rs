//! Just enough of Cassandra's native protocol (version 4) to tell that a node
//! serves clients and how many other nodes it knows.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const REQUEST_VERSION: u8 = 0x04;
const ANSWER_VERSION: u8 = 0x84;
const HEADER_BYTES: usize = 9;
const ANSWER_BYTES_MAX: usize = 1 << 20;
const CONNECT_MAX: Duration = Duration::from_secs(1);
const ANSWER_MAX: Duration = Duration::from_secs(5);

const STARTUP: u8 = 0x01;
const READY: u8 = 0x02;
const OPTIONS: u8 = 0x05;
const SUPPORTED: u8 = 0x06;
const QUERY: u8 = 0x07;
const RESULT: u8 = 0x08;

/// The node answers OPTIONS with SUPPORTED.
pub(crate) fn serves(address: SocketAddr) -> bool {
    connect(address)
        .and_then(|mut stream| exchange(&mut stream, OPTIONS, &[], SUPPORTED))
        .is_ok()
}

/// How many other nodes this one has seen join.
pub(crate) fn peers(address: SocketAddr) -> io::Result<usize> {
    count_rows(address, "SELECT peer FROM system.peers_v2")
}

/// The version that the node says it has.
pub(crate) fn version(address: SocketAddr) -> io::Result<String> {
    let result = ask(address, "SELECT release_version FROM system.local")?;
    only_text(&result).ok_or_else(unexpected)
}

/// How many rows a statement answers.
pub(crate) fn count_rows(address: SocketAddr, text: &str) -> io::Result<usize> {
    row_count(&ask(address, text)?).ok_or_else(unexpected)
}

/// The result of a statement, without the names of its columns.
fn ask(address: SocketAddr, text: &str) -> io::Result<Vec<u8>> {
    let mut stream = connect(address)?;
    let mut options = 1_u16.to_be_bytes().to_vec();
    for text in ["CQL_VERSION", "3.0.0"] {
        options.extend((text.len() as u16).to_be_bytes());
        options.extend(text.as_bytes());
    }
    exchange(&mut stream, STARTUP, &options, READY)?;
    let (consistency_one, without_column_names) = (1_u16.to_be_bytes(), [0x02]);
    let query = [
        &(text.len() as u32).to_be_bytes()[..],
        text.as_bytes(),
        &consistency_one,
        &without_column_names,
    ]
    .concat();
    exchange(&mut stream, QUERY, &query, RESULT)
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    Ok(stream)
}

fn exchange(stream: &mut TcpStream, request: u8, body: &[u8], expected: u8) -> io::Result<Vec<u8>> {
    let header = [
        &[REQUEST_VERSION, 0, 0, 0, request][..],
        &(body.len() as u32).to_be_bytes(),
    ]
    .concat();
    stream.write_all(&[&header, body].concat())?;
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let length = u32::from_be_bytes([header[5], header[6], header[7], header[8]]) as usize;
    if header[0] != ANSWER_VERSION || header[4] != expected || length > ANSWER_BYTES_MAX {
        return Err(unexpected());
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// Of a result without column names: kind, flags, number of columns, number of rows.
fn row_count(result: &[u8]) -> Option<usize> {
    const ROWS: u32 = 2;
    const MORE_PAGES_FLAG: u32 = 0x02;
    const NO_COLUMN_NAMES_FLAG: u32 = 0x04;
    let number = |index: usize| {
        Some(u32::from_be_bytes(
            result.get(index * 4..index * 4 + 4)?.try_into().ok()?,
        ))
    };
    let flags = number(1)?;
    let plain =
        number(0)? == ROWS && flags & MORE_PAGES_FLAG == 0 && flags & NO_COLUMN_NAMES_FLAG != 0;
    if plain {
        Some(number(3)? as usize)
    } else {
        None
    }
}

/// The first value of the only row, which comes after the four numbers, with its length.
fn only_text(result: &[u8]) -> Option<String> {
    (row_count(result)? == 1).then_some(())?;
    let (length, rest) = result.get(16..)?.split_first_chunk()?;
    let text = rest.get(..usize::try_from(i32::from_be_bytes(*length)).ok()?)?;
    String::from_utf8(text.to_vec()).ok()
}

fn unexpected() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the node gave an unexpected answer",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_only_in_a_whole_plain_result() {
        let check = |numbers: [u32; 4], expected: Option<usize>| {
            let result: Vec<u8> = numbers
                .iter()
                .flat_map(|number| number.to_be_bytes())
                .collect();
            assert_eq!(row_count(&result), expected, "{numbers:?}");
            assert_eq!(row_count(&result[..15]), None);
        };
        check([2, 0x05, 1, 0], Some(0));
        check([2, 0x04, 1, 2], Some(2));
        check([2, 0x06, 1, 2], None);
        check([2, 0x01, 1, 2], None);
        check([1, 0x04, 1, 2], None);
    }

    #[test]
    fn a_text_is_read_from_a_single_row() {
        let result = |rows: u32, length: i32, text: &str| {
            let numbers = [2, 0x04, 1, rows].map(u32::to_be_bytes).concat();
            [&numbers, &length.to_be_bytes()[..], text.as_bytes()].concat()
        };
        assert_eq!(only_text(&result(1, 5, "5.0.8")).as_deref(), Some("5.0.8"));
        assert_eq!(only_text(&result(1, 6, "5.0.8")), None, "cut short");
        assert_eq!(only_text(&result(1, -1, "")), None, "null");
        assert_eq!(only_text(&result(2, 5, "5.0.8")), None, "two rows");
        assert_eq!(only_text(&result(0, 5, "5.0.8")), None, "no row");
    }
}
