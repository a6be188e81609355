//! Who may ask, and of whom.
//!
//! The listener is on the loopback: whoever can reach it works on this machine, but so does the browser of whoever
//! works on it. A page from elsewhere cannot leave its origin out, nor send another content type without asking first.
//! And a port is given to somebody else when a process dies: who found the address in a file says which process it
//! was meant for.

use std::fmt;

use crate::refusal::{Kind, Refusal};

/// Which process a request is meant for; may be left out.
pub const PROCESS_HEADER: &str = "x-caravan-process";
/// Who asks, for the audit journal; nobody proves it.
pub const OPERATOR_HEADER: &str = "x-caravan-operator";

const OPERATOR_CHARACTERS_MAX: usize = 120;

/// Drawn at random by every process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessId(pub String);

/// Who asks, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator(String);

impl Operator {
    pub fn new(name: &str) -> Operator {
        let plain = |c: &char| c.is_ascii_graphic();
        let name: String = name
            .chars()
            .filter(plain)
            .take(OPERATOR_CHARACTERS_MAX)
            .collect();
        match name.is_empty() {
            true => Operator("unknown".to_owned()),
            false => Operator(name),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is looked at before a request is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Head<'a> {
    pub(crate) origin: Option<&'a str>,
    pub(crate) content_type: Option<&'a str>,
    pub(crate) process: Option<&'a str>,
    pub(crate) host: Option<&'a str>,
    pub(crate) body: Body,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Body {
    #[default]
    Absent,
    Present,
}

pub(crate) fn admit(head: Head<'_>, own: &ProcessId) -> Result<(), Refusal> {
    if head.origin.is_some() {
        let detail = "pages of a browser may not ask here: use caravan move";
        return Err(Refusal::new(Kind::Forbidden, detail));
    }
    // A name that somebody else's server resolves to this machine.
    if !head.host.is_some_and(is_loopback) {
        let detail = "ask by the loopback address, as in http://127.0.0.1";
        return Err(Refusal::new(Kind::Forbidden, detail));
    }
    let json = head
        .content_type
        .is_some_and(|it| it.starts_with("application/json"));
    if head.body == Body::Present && !json {
        let detail = "the body is no JSON: send it as application/json";
        return Err(Refusal::new(Kind::Invalid, detail));
    }
    if head.process.is_some_and(|process| process != own.0) {
        let detail = "another process serves here now: look up the address again";
        return Err(Refusal::new(Kind::Misdirected, detail));
    }
    Ok(())
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost"
        || name
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_browsers_and_strays_are_turned_away() {
        let own = ProcessId("a1".to_owned());
        let fine = Head {
            host: Some("127.0.0.1:4711"),
            ..Head::default()
        };
        let check = |head: Head<'_>, kind: Option<Kind>| {
            let found = admit(head, &own).err().map(|refusal| refusal.kind);
            assert_eq!(found, kind, "{head:?}");
        };
        check(fine, None);
        for host in ["localhost:1", "[::1]:4711", "[::1]", "127.0.0.1"] {
            check(
                Head {
                    host: Some(host),
                    ..fine
                },
                None,
            );
        }
        check(Head { host: None, ..fine }, Some(Kind::Forbidden));
        check(
            Head {
                host: Some("shop.example:4711"),
                ..fine
            },
            Some(Kind::Forbidden),
        );
        check(
            Head {
                origin: Some("http://127.0.0.1:4711"),
                ..fine
            },
            Some(Kind::Forbidden),
        );
        let form = Some("text/plain");
        check(
            Head {
                content_type: form,
                body: Body::Present,
                ..fine
            },
            Some(Kind::Invalid),
        );
        let json = Some("application/json; charset=utf-8");
        check(
            Head {
                content_type: json,
                body: Body::Present,
                ..fine
            },
            None,
        );
        check(
            Head {
                process: Some("a1"),
                ..fine
            },
            None,
        );
        check(
            Head {
                process: Some("b2"),
                ..fine
            },
            Some(Kind::Misdirected),
        );
    }

    #[test]
    fn an_operator_is_plain_text_of_bounded_length() {
        assert_eq!(Operator::new("ann@host/7").as_str(), "ann@host/7");
        assert_eq!(Operator::new("\n ").as_str(), "unknown");
        assert_eq!(Operator::new(&"a".repeat(500)).as_str().len(), 120);
    }
}
