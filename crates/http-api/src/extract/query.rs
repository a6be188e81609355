//! Queries: known parameters, each at most once.

use std::borrow::Cow;
use std::fmt::Display;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use model::{CategoryName, Money, ShopperSessionId, Timestamp, UserId};
use percent_encoding::percent_decode_str;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::app::App;
use crate::problem::{Code, Problem};

pub(crate) struct Query<T>(pub(crate) T);

/// The parameters of a route, each absent at first.
pub(crate) trait QueryParameters: Default {
    const NAMES: &'static [&'static str];

    /// Takes over one of the names.
    fn set(&mut self, name: &str, value: &str) -> Result<(), Problem>;
}

/// A value that stands in a query.
pub(crate) trait FromParameter: Sized {
    fn from_parameter(text: &str) -> Result<Self, String>;
}

/// Makes a struct of optional parameters, documented for OpenAPI by its attributes.
macro_rules! query_parameters {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Default, utoipa::IntoParams)]
        #[into_params(parameter_in = Query)]
        pub(crate) struct $name {
            $($(#[$field_meta])* pub(crate) $field: Option<$type>,)*
        }

        impl $crate::extract::QueryParameters for $name {
            const NAMES: &'static [&'static str] = &[$(stringify!($field),)*];

            fn set(&mut self, name: &str, value: &str) -> Result<(), $crate::problem::Problem> {
                use $crate::extract::FromParameter as _;
                $(if name == stringify!($field) {
                    if self.$field.is_some() {
                        let detail = format!("{name} is given twice, give it once");
                        return Err($crate::problem::Problem::new(
                            $crate::problem::Code::MalformedQuery,
                            detail,
                        ));
                    }
                    let read = <$type>::from_parameter(value);
                    let field = |said| $crate::problem::Problem::field(stringify!($field), said);
                    self.$field = Some(read.map_err(field)?);
                })*
                Ok(())
            }
        }
    };
}

pub(crate) use query_parameters;

impl<T: QueryParameters + Send> FromRequestParts<App> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Query<T>, Problem> {
        parse(parts.uri.query().unwrap_or_default()).map(Query)
    }
}

fn parse<T: QueryParameters>(query: &str) -> Result<T, Problem> {
    let malformed = |detail: String| Problem::new(Code::MalformedQuery, detail);
    let mut parameters = T::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (decode(name), decode(value)) else {
            return Err(malformed("the query is not UTF-8, encode it so".to_owned()));
        };
        if !T::NAMES.contains(&&*name) {
            let shown: String = name.chars().take(40).collect();
            let known = match T::NAMES {
                [] => "there are none here".to_owned(),
                names => format!("there are {}", names.join(", ")),
            };
            return Err(malformed(format!("{shown:?} is no parameter, {known}")));
        }
        parameters.set(&name, &value)?;
    }
    Ok(parameters)
}

fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().ok()?;
    Some(Cow::Owned(decoded.into_owned()))
}

fn say(error: impl Display) -> String {
    error.to_string()
}

impl FromParameter for UserId {
    fn from_parameter(text: &str) -> Result<UserId, String> {
        UserId::parse(text).map_err(say)
    }
}

impl FromParameter for ShopperSessionId {
    fn from_parameter(text: &str) -> Result<ShopperSessionId, String> {
        ShopperSessionId::parse(text).map_err(say)
    }
}

impl FromParameter for CategoryName {
    fn from_parameter(text: &str) -> Result<CategoryName, String> {
        CategoryName::parse(text).map_err(say)
    }
}

impl FromParameter for Money {
    fn from_parameter(text: &str) -> Result<Money, String> {
        Money::parse(text).map_err(say)
    }
}

impl FromParameter for String {
    fn from_parameter(text: &str) -> Result<String, String> {
        Ok(text.to_owned())
    }
}

impl FromParameter for usize {
    fn from_parameter(text: &str) -> Result<usize, String> {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| plain);
        number.ok_or_else(|| "write a whole number in digits".to_owned())
    }
}

impl FromParameter for Timestamp {
    fn from_parameter(text: &str) -> Result<Timestamp, String> {
        let refused = || "write a time of RFC 3339, as in 2026-11-16T02:41:30Z".to_owned();
        let time = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| refused())?;
        let micros = time.unix_timestamp_nanos().div_euclid(1000);
        let micros = i64::try_from(micros).map_err(|_| refused())?;
        Ok(Timestamp::from_unix_micros(micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    query_parameters!(Listing {
        #[param(value_type = Option<String>)]
        user_id: UserId,
        #[param(value_type = Option<String>)]
        from: Timestamp,
        limit: usize,
    });

    fn code(query: &str) -> Code {
        parse::<Listing>(query).unwrap_err().code()
    }

    #[test]
    fn parameters_become_the_models_types() {
        let query = "user_id=%D0%B0nn+b&from=2026-11-16T02%3A41%3A30.123456Z&&limit=7";
        let listing: Listing = parse(query).unwrap();
        assert_eq!(listing.user_id.unwrap().as_str(), "аnn b");
        assert_eq!(
            listing.from.unwrap().to_string(),
            "2026-11-16T02:41:30.123456Z"
        );
        assert_eq!(listing.limit, Some(7));
        assert!(parse::<Listing>("").unwrap().limit.is_none());
    }

    #[test]
    fn times_with_an_offset_are_the_same_moments() {
        let time = |text: &str| Timestamp::from_parameter(text).unwrap();
        let moment = time("2026-11-16T02:41:30Z");
        assert_eq!(time("2026-11-16T05:41:30+03:00"), moment);
        assert_eq!(time("2026-11-16T02:41:30.000000999Z"), moment);
    }

    #[test]
    fn what_is_unknown_or_wrong_is_refused() {
        assert_eq!(code("user=ann"), Code::MalformedQuery);
        assert_eq!(code("limit=1&limit=1"), Code::MalformedQuery);
        assert_eq!(code("user_id=%ff"), Code::MalformedQuery);
        for query in [
            "limit=-1",
            "limit=",
            "limit=+5",
            "limit=1e3",
            "limit=99999999999999999999999",
            "user_id=",
            "user_id=%00",
            "from=yesterday",
            "from=2026-11-16",
            "from=2026-02-30T00:00:00Z",
        ] {
            assert_eq!(code(query), Code::InvalidField, "{query}");
        }
    }
}
