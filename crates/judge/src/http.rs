//! HTTP/1.1 over one kept-alive connection: no more than a client of the shop needs, and cheap enough for a
//! load program that shares its cores with the server.

use std::io::{self, Error, ErrorKind};
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A page of a hundred large orders is far below this.
const RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;
const READ_BYTES: usize = 16 * 1024;

/// Takes one request at a time. After an error its state is unknown: open another.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// Stands in the connection's buffer until the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    pub status: u16,
    head: &'a [u8],
    pub body: &'a [u8],
}

impl Connection {
    pub async fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            buffer: Vec::with_capacity(READ_BYTES),
        })
    }

    /// Sends the bytes of one request and waits for the whole response.
    pub async fn exchange(&mut self, request: &[u8]) -> io::Result<Response<'_>> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let (head_end, length) = loop {
            self.read_more().await?;
            if let Some(end) = find_head_end(&self.buffer) {
                break (end, end + body_length(&self.buffer[..end])?);
            }
        };
        if length > RESPONSE_BYTES_MAX {
            return Err(malformed("the response is too long"));
        }
        while self.buffer.len() < length {
            self.read_more().await?;
        }
        if self.buffer.len() > length {
            return Err(malformed("more came than one response"));
        }
        let (head, body) = self.buffer.split_at(head_end);
        let status = status(head)?;
        Ok(Response { status, head, body })
    }

    async fn read_more(&mut self) -> io::Result<()> {
        if self.buffer.len() > RESPONSE_BYTES_MAX {
            return Err(malformed("the response is too long"));
        }
        self.buffer.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(Error::new(
                ErrorKind::UnexpectedEof,
                "the server closed the connection before its answer was whole",
            )),
            _ => Ok(()),
        }
    }
}

impl<'a> Response<'a> {
    pub fn header(&self, name: &str) -> Option<&'a str> {
        header(self.head, name)
    }
}

/// Appends one request. `body` comes with its length and its type.
pub fn write_request(
    out: &mut Vec<u8>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&[u8]>,
) {
    let mut put = |text: &str| out.extend_from_slice(text.as_bytes());
    for text in [method, " ", path, " HTTP/1.1\r\nhost: 127.0.0.1\r\n"] {
        put(text);
    }
    for (name, value) in headers {
        for text in [name, ": ", value, "\r\n"] {
            put(text);
        }
    }
    match body {
        Some(body) => {
            put("content-type: application/json\r\ncontent-length: ");
            put(&body.len().to_string());
            put("\r\n\r\n");
            out.extend_from_slice(body);
        }
        None if method == "GET" => put("\r\n"),
        None => put("content-length: 0\r\n\r\n"),
    }
}

fn find_head_end(bytes: &[u8]) -> Option<usize> {
    let start = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some(start + 4)
}

fn status(head: &[u8]) -> io::Result<u16> {
    let digits = head
        .strip_prefix(b"HTTP/1.1 ")
        .and_then(|rest| rest.get(..3));
    digits
        .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok())
        .ok_or_else(|| malformed("the response does not begin with HTTP/1.1 and a status"))
}

fn body_length(head: &[u8]) -> io::Result<usize> {
    if let Some(length) = header(head, "content-length") {
        return length
            .parse()
            .map_err(|_| malformed("content-length is no number"));
    }
    match status(head)? {
        100..200 | 204 | 304 => Ok(0),
        _ => Err(malformed("the response has no content-length")),
    }
}

fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    head.split(|byte| *byte == b'\n').skip(1).find_map(|line| {
        let (start, rest) = line.split_at_checked(name.len())?;
        let value = rest.strip_prefix(b":")?;
        let named = start.eq_ignore_ascii_case(name.as_bytes());
        named.then(|| std::str::from_utf8(value.trim_ascii()).ok())?
    })
}

fn malformed(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_tells_status_length_and_headers_in_any_case() {
        let head = b"HTTP/1.1 201 Created\r\nContent-Length: 12\r\nETag: \"7\"\r\n\r\n";
        assert_eq!(find_head_end(head), Some(head.len()));
        assert_eq!(status(head).unwrap(), 201);
        assert_eq!(body_length(head).unwrap(), 12);
        assert_eq!(header(head, "etag"), Some("\"7\""));
        assert_eq!(header(head, "location"), None);
    }

    #[test]
    fn a_response_without_a_length_is_refused_unless_it_cannot_have_a_body() {
        assert!(body_length(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert_eq!(body_length(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap(), 0);
        assert!(status(b"HTTP/1.0 200 OK\r\n\r\n").is_err());
    }

    #[test]
    fn a_request_says_how_long_its_body_is() {
        let mut out = Vec::new();
        write_request(&mut out, "PUT", "/v1/x", &[("a", "b")], Some(b"{}"));
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("PUT /v1/x HTTP/1.1\r\n"), "{text}");
        assert!(text.contains("\r\na: b\r\n"), "{text}");
        assert!(text.ends_with("content-length: 2\r\n\r\n{}"), "{text}");
    }
}
