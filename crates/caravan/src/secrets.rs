//! Passwords in addresses, kept out of everything that is printed.

use std::borrow::Cow;

const MASK: &str = "***";

/// Options of addresses whose values are secrets too, in small letters.
const SECRET_OPTIONS: [&str; 2] = ["password=", "aws_session_token:"];

/// The text with the passwords of the addresses in it masked: `mongodb://shop:***@db1`.
///
/// Rather more is masked than a password than less: between the first colon of an address
/// and its last `@`, because an address that is written wrongly, with a password that
/// has an `@` or a slash of its own, is the one that ends up in an error.
pub fn masked(text: &str) -> String {
    text.split_inclusive(char::is_whitespace)
        .map(masked_word)
        .collect()
}

fn masked_word(word: &str) -> Cow<'_, str> {
    let word = match password_of(word) {
        Some((before, after)) => Cow::Owned(format!("{before}{MASK}{after}")),
        None => Cow::Borrowed(word),
    };
    SECRET_OPTIONS
        .iter()
        .fold(word, |word, option| match option_of(&word, option) {
            Some((before, after)) => Cow::Owned(format!("{before}{MASK}{after}")),
            None => word,
        })
}

/// `user:password` of an address.
pub fn credentials(address: &str) -> Option<&str> {
    let (front, _) = address.rsplit_once('@')?;
    Some(&front[host_begins(front)..])
}

/// The address with these instead of its own, or with none.
pub fn with_credentials(address: &str, credentials: Option<&str>) -> String {
    let begin = host_begins(address);
    let (scheme, rest) = address.split_at(begin);
    let (_, hosts) = rest.rsplit_once('@').unwrap_or(("", rest));
    match credentials {
        Some(credentials) => format!("{scheme}{credentials}@{hosts}"),
        None => format!("{scheme}{hosts}"),
    }
}

fn host_begins(address: &str) -> usize {
    address.find("://").map_or(0, |at| at + 3)
}

/// What stands before the password and what stands after it.
fn password_of(word: &str) -> Option<(&str, &str)> {
    let (front, _) = word.rsplit_once('@')?;
    let scheme = host_begins(front);
    let colon = scheme + front[scheme..].find(':')?;
    Some((&word[..=colon], &word[front.len()..]))
}

fn option_of<'a>(word: &'a str, option: &str) -> Option<(&'a str, &'a str)> {
    let begin = word.to_ascii_lowercase().find(option)? + option.len();
    let ends = |character: char| character.is_whitespace() || "&,\"'".contains(character);
    let end = word[begin..].find(ends).map_or(word.len(), |at| begin + at);
    Some((&word[..begin], &word[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_and_password_are_taken_out_of_an_address_and_put_into_another() {
        let own = "mongodb://shop:p@ss@db1,db2/?replicaSet=x";
        assert_eq!(credentials(own), Some("shop:p@ss"));
        let bare = with_credentials(own, None);
        assert_eq!(bare, "mongodb://db1,db2/?replicaSet=x");
        assert_eq!(credentials(&bare), None);
        assert_eq!(with_credentials(&bare, Some("shop:p@ss")), own);
        assert_eq!(with_credentials("db1:9042", Some("a:b")), "a:b@db1:9042");
    }

    #[test]
    fn passwords_are_masked_and_nothing_else_is() {
        for (text, expected) in [
            (
                "mongodb://shop:pw@db1:27017,db2",
                "mongodb://shop:***@db1:27017,db2",
            ),
            (
                "mongo=mongodb://shop:pw@db1/?replicaSet=a",
                "mongo=mongodb://shop:***@db1/?replicaSet=a",
            ),
            (
                "a=cassandra://shop:p@w:@10.0.0.1:9042",
                "a=cassandra://shop:***@10.0.0.1:9042",
            ),
            ("b=shop:pw@10.0.0.1", "b=shop:***@10.0.0.1"),
            ("mongodb://shop:p/w?@db1", "mongodb://shop:***@db1"),
            ("mongodb://shop:@db1", "mongodb://shop:***@db1"),
            (
                "unexpected argument 'mongodb://shop:pw@db1' found\n",
                "unexpected argument 'mongodb://shop:***@db1' found\n",
            ),
            (
                "a=mongodb://s:pw@h b=shop:pw@i",
                "a=mongodb://s:***@h b=shop:***@i",
            ),
            (
                "mongodb://db1/?tlsCertificateKeyFilePassword=pw&tls=true",
                "mongodb://db1/?tlsCertificateKeyFilePassword=***&tls=true",
            ),
            (
                "mongodb://db1/?authMechanismProperties=AWS_SESSION_TOKEN:pw",
                "mongodb://db1/?authMechanismProperties=AWS_SESSION_TOKEN:***",
            ),
        ] {
            assert_eq!(masked(text), expected);
        }
        for harmless in [
            "no server answers at db1:27017: start the replica set\n",
            "mongodb://db1:27017/?replicaSet=shop",
            "shop@db1: write user:password before the @",
            "",
        ] {
            assert_eq!(masked(harmless), harmless);
        }
    }
}
