//! Who asks, as far as the system tells.

use ops_api::Operator;

use crate::config::host_name;

/// As in `ann@shop-1/4711`.
pub fn this_operator() -> Operator {
    let named = |variable| std::env::var(variable).ok().filter(|name| !name.is_empty());
    let user = named("USER").or_else(|| named("LOGNAME"));
    let user = user.unwrap_or_else(|| format!("uid-{}", rustix::process::getuid().as_raw()));
    let host = host_name().unwrap_or_else(|| "this-machine".to_owned());
    Operator::new(&format!("{user}@{host}/{}", std::process::id()))
}
