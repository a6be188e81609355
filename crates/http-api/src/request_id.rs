//! Names of requests: the client's own if it is fit for a log line, otherwise ours.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const CLIENT_BYTES_MAX: usize = 64;

/// A number drawn at the start and a counter: unique without asking anyone.
#[derive(Debug)]
pub(crate) struct RequestIds {
    start: u32,
    next: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new(random: u64) -> RequestIds {
        RequestIds {
            start: (random >> 32) as u32,
            next: AtomicU64::new(0),
        }
    }

    pub(crate) fn make(&self) -> HeaderValue {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut text = *b"r00000000-000000000000";
        let mut put = |place: std::ops::Range<usize>, mut value: u64| {
            for byte in text[place].iter_mut().rev() {
                *byte = HEX[(value & 15) as usize];
                value >>= 4;
            }
        };
        put(1..9, u64::from(self.start));
        put(10..22, number);
        HeaderValue::from_bytes(&text).expect("hex digits are a header's value")
    }
}

/// The client's id, if it is 1 to 64 visible ASCII characters.
pub(crate) fn of_client(headers: &HeaderMap) -> Option<HeaderValue> {
    let value = headers.get(X_REQUEST_ID)?;
    let bytes = value.as_bytes();
    let fits =
        (1..=CLIENT_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    fits.then(|| value.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_ids_differ_and_name_their_process() {
        let ids = RequestIds::new(0xdead_beef_0000_0000);
        assert_eq!(ids.make(), "rdeadbeef-000000000000");
        assert_eq!(ids.make(), "rdeadbeef-000000000001");
    }

    #[test]
    fn a_client_names_its_request_only_with_what_a_log_line_can_hold() {
        fn check(text: &[u8], taken: bool) {
            let mut headers = HeaderMap::new();
            headers.insert(X_REQUEST_ID, HeaderValue::from_bytes(text).unwrap());
            assert_eq!(of_client(&headers).is_some(), taken, "{text:?}");
        }
        check(b"order-7/a", true);
        check(&[b'x'; 64], true);
        check(&[b'x'; 65], false);
        check(b"", false);
        check(b"two words", false);
        check("я".as_bytes(), false);
    }
}
