//! Settings: from a TOML file, the environment and flags, each over the one before.
//!
//! ```text
//!   defaults ◀── file ◀── CARAVAN_… ◀── flags        http.slow_ms = 200
//!                                                    CARAVAN_HTTP_SLOW_MS=200
//!                                                    --set http.slow_ms=200
//! ```
//!
//! A key that nobody knows is an error wherever it stands: a misspelt limit that is
//! silently ignored is found out on the day it is needed. Written by hand, because
//! the crates for this take more lines to be told which variables are unknown.

mod addresses;
mod keys;

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use http_api::HttpLimits;
use router::{Limits, ProcessName};
use serde::Deserialize;
use shop_service::Settings;
use toml::{Table, Value};

use crate::arguments::SettingsArguments;
use crate::logging::LogWish;
use crate::ops::OpsSettings;
use crate::serve::{MoveSettings, Upkeep};
use crate::shards::SHARDS_MAX;

pub use addresses::Addresses;

const DEFAULT_DIRECTORY: &str = "./caravan-data";

/// Says that collections are, or go, into the data directory, where the file of a layout could stand.
const DIRECTORY_WORD: &str = "embedded";

const DEFAULT_LISTEN: &str = "127.0.0.1:8080";

const VARIABLE_PREFIX: &str = "CARAVAN_";

/// Names the file; it is no setting itself.
const FILE_VARIABLE: &str = "CARAVAN_CONFIG";

/// Variables of the programs that build and test Caravan.
const FOREIGN_PREFIXES: [&str; 4] = [
    "CARAVAN_BUILD_",
    "CARAVAN_FAULT_",
    "CARAVAN_MUTANTS_",
    "CARAVAN_TESTBED_",
];

/// The longest file. One with every key has a fiftieth of it.
const FILE_BYTES_MAX: u64 = 256 * 1024;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub data: PathBuf,
    pub listen: SocketAddr,
    pub log: LogWish,
    /// `None`: as the directory has, and one for a new one.
    pub shards: Option<u16>,
    /// `None`: everything in the data directory.
    pub layout: Option<PathBuf>,
    /// The layout that collections are being moved to, or `embedded` for the data directory: its shards are opened as well.
    pub toward: Option<PathBuf>,
    /// The layout whose control shard keeps the map, or `embedded` for the data directory, if it is not `layout`.
    pub control: Option<PathBuf>,
    pub addresses: Addresses,
    /// What this process is called among those that serve the same layout. `None`: by
    /// the machine's name and the process's number.
    pub process: Option<ProcessName>,
    pub shop: Settings,
    pub router: Limits,
    pub http: HttpLimits,
    pub upkeep: Upkeep,
    pub ops: OpsSettings,
    pub moves: MoveSettings,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            data: DEFAULT_DIRECTORY.into(),
            listen: DEFAULT_LISTEN.parse().expect("the default is an address"),
            log: LogWish::default(),
            shards: None,
            layout: None,
            toward: None,
            control: None,
            addresses: Addresses::default(),
            process: None,
            shop: Settings::default(),
            router: Limits::default(),
            http: HttpLimits::default(),
            upkeep: Upkeep::default(),
            ops: OpsSettings::default(),
            moves: MoveSettings::default(),
        }
    }
}

impl Config {
    /// Reads everything, checks everything, starts nothing.
    pub fn load(flags: &SettingsArguments) -> Result<Config> {
        Config::load_with(flags, std::env::vars_os())
    }

    fn load_with(
        flags: &SettingsArguments,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<Config> {
        let variables = own_variables(variables)?;
        let mut layers = Layers::default();
        let named = variables.iter().find(|(name, _)| name == FILE_VARIABLE);
        let named = named.map(|(_, path)| PathBuf::from(path));
        if let Some(file) = flags.config.clone().or(named) {
            let shown = file.display().to_string();
            layers.put_file(&read(&file)?, &shown)?;
            layers.check(&shown)?;
        }
        for (name, text) in &variables {
            if name != FILE_VARIABLE {
                layers.put_variable(name, text)?;
                layers.check(name)?;
            }
        }
        for (key, text, flag) in flag_settings(flags)? {
            layers
                .put_text(&key, &text)
                .map_err(|why| anyhow!("{flag}: {why}"))?;
            layers.check(&flag)?;
        }
        let config = layers.config()?.settled();
        config.check()?;
        Ok(config)
    }

    /// The data directory may be said in two ways where it is meant anyway.
    fn settled(mut self) -> Config {
        self.layout = self.layout.filter(|layout| !is_directory(layout));
        if self.layout.is_none() {
            self.control = self.control.filter(|control| !is_directory(control));
        }
        self
    }

    /// The layout that is served: its file, or the word for the data directory.
    pub fn here(&self) -> &Path {
        self.layout.as_deref().unwrap_or(Path::new(DIRECTORY_WORD))
    }

    /// Whether no layout file has a part in this.
    pub fn is_directory_alone(&self) -> bool {
        self.layout.is_none() && self.toward.is_none() && self.control.is_none()
    }

    /// The settings as a file that could be given with `--config`, but for passwords.
    pub fn text(&self) -> String {
        toml::to_string(&keys::table(self)).expect("a table of texts and numbers is TOML")
    }

    /// Whether the data directory is one of the layouts.
    fn has_directory(&self) -> bool {
        let mut others = [&self.toward, &self.control].into_iter().flatten();
        self.layout.is_none() || others.any(|other| is_directory(other))
    }

    pub fn process(&self) -> ProcessName {
        self.process.clone().unwrap_or_else(process_name)
    }

    /// What one key alone cannot say.
    fn check(&self) -> Result<()> {
        if let Some(shards) = self.shards {
            ensure!(
                (1..=SHARDS_MAX).contains(&shards),
                "shards is {shards}: choose 1 to {SHARDS_MAX}"
            );
        }
        ensure!(
            self.has_directory() || self.shards.is_none(),
            "shards is for the data directory alone: with a layout, that says which there are"
        );
        ensure!(
            !self.is_directory_alone() || self.addresses.is_empty(),
            "addresses are of a layout's shards: give the layout too, with --layout FILE"
        );
        ensure!(
            self.layout.is_some() || !self.toward.as_deref().is_some_and(is_directory),
            "everything is in {} already: name the layout that it comes from with --layout FILE, or one that it goes to with --toward FILE",
            self.data.display()
        );
        self.addresses.by_shard()?;
        self.router
            .check()
            .map_err(|error| anyhow!("router.{error}"))?;
        self.http.check().map_err(|error| anyhow!("http.{error}"))?;
        self.moves.check()?;
        self.upkeep.check()?;
        self.ops.check()
    }
}

/// Whether the data directory is meant, and no file.
pub fn is_directory(layout: &Path) -> bool {
    layout == Path::new(DIRECTORY_WORD)
}

/// What the machine is called, if it says so.
pub fn host_name() -> Option<String> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let host = host.trim();
    (!host.is_empty()).then(|| host.to_owned())
}

fn process_name() -> ProcessName {
    let host = host_name().and_then(|host| ProcessName::new(host).ok());
    let host = host.map_or("caravan".to_owned(), |host| host.to_string());
    let number = std::process::id();
    ProcessName::new(format!("{host}-{number}"))
        .or_else(|_| ProcessName::new(format!("caravan-{number}")))
        .expect("letters, a dash and digits make a name")
}

/// The keys that were set so far, in the form of a file.
#[derive(Default)]
struct Layers(Table);

impl Layers {
    fn put_file(&mut self, table: &Table, origin: &str) -> Result<()> {
        for (key, value) in table {
            let pairs = match value {
                Value::Table(section) => section
                    .iter()
                    .map(|(name, value)| (format!("{key}.{name}"), value.clone()))
                    .collect(),
                value => vec![(key.clone(), value.clone())],
            };
            for (key, value) in pairs {
                self.put(&key, value)
                    .map_err(|why| anyhow!("{origin}: {why}"))?;
            }
        }
        Ok(())
    }

    fn put_variable(&mut self, name: &str, text: &str) -> Result<()> {
        let known = keys::known();
        match known.iter().find(|key| variable_of(key) == name) {
            Some(key) => self.put_text(key, text),
            None => {
                let near = keys::near(&name.to_lowercase().replacen("caravan_", "", 1), '_');
                let known: Vec<String> = near.iter().map(|key| variable_of(key)).collect();
                bail!("{name} sets nothing: known are {}", known.join(", "))
            }
        }
    }

    fn put_text(&mut self, key: &str, text: &str) -> Result<()> {
        // A text where a number belongs is refused when all is read, with the key's name.
        let value = match text.parse() {
            Ok(number) if keys::is_number(key) => Value::Integer(number),
            _ => Value::String(text.to_owned()),
        };
        self.put(key, value)
    }

    fn put(&mut self, key: &str, value: Value) -> Result<()> {
        if !keys::known().iter().any(|known| known == key) {
            let near = keys::near(key, '.').join(", ");
            bail!("there is no setting {key:?}: known are {near}");
        }
        match key.split_once('.') {
            None => self.0.insert(key.to_owned(), value),
            Some((section, name)) => {
                let empty = || Value::Table(Table::new());
                let section = self.0.entry(section.to_owned()).or_insert_with(empty);
                let table = section.as_table_mut();
                table.and_then(|table| table.insert(name.to_owned(), value))
            }
        };
        Ok(())
    }

    /// Names where the value that does not fit came from.
    fn check(&self, origin: &str) -> Result<()> {
        self.config()
            .map(drop)
            .map_err(|why| anyhow!("{origin}: {why}"))
    }

    fn config(&self) -> Result<Config> {
        Value::Table(self.0.clone())
            .try_into()
            .map_err(|error: toml::de::Error| anyhow!(one_line(&error.to_string())))
    }
}

/// Those that begin like ours, but for the tools' own.
fn own_variables(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<(String, String)>> {
    let mut own = Vec::new();
    for (name, text) in variables {
        let Some(name) = name.to_str() else { continue };
        let foreign = FOREIGN_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if name.starts_with(VARIABLE_PREFIX) && !foreign {
            let Some(text) = text.to_str() else {
                bail!("{name} is no readable text: set it anew");
            };
            own.push((name.to_owned(), text.to_owned()));
        }
    }
    own.sort();
    Ok(own)
}

fn variable_of(key: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", key.replace('.', "_").to_uppercase())
}

/// Key, value and the flag that said so.
fn flag_settings(flags: &SettingsArguments) -> Result<Vec<(String, String, String)>> {
    let data = match &flags.data {
        Some(path) => Some(
            path.to_str()
                .with_context(|| {
                    format!(
                        "--data {} is no readable text: choose another path",
                        path.display()
                    )
                })?
                .to_owned(),
        ),
        None => None,
    };
    let named = [
        ("data", data),
        ("shards", flags.shards.clone()),
        ("listen", flags.listen.clone()),
        ("log", flags.log.clone()),
        ("layout", flags.layout.clone()),
        ("toward", flags.toward.clone()),
        ("control", flags.control.clone()),
        (
            "addresses",
            (!flags.address.is_empty()).then(|| flags.address.join(" ")),
        ),
    ];
    let mut settings = Vec::new();
    for (key, text) in named {
        settings.extend(text.map(|text| (key.to_owned(), text, format!("--{key}"))));
    }
    for set in &flags.set {
        let Some((key, text)) = set.split_once('=') else {
            bail!("--set {set} has no value: write it as KEY=VALUE");
        };
        settings.push((key.to_owned(), text.to_owned(), format!("--set {key}")));
    }
    Ok(settings)
}

fn read(file: &Path) -> Result<Table> {
    let shown = file.display();
    let unreadable = |why: String| {
        anyhow!(
            "the settings {shown} cannot be read ({why}): name a TOML file that this user may read"
        )
    };
    let bytes = fs::metadata(file)
        .map_err(|error| unreadable(error.to_string()))?
        .len();
    ensure!(
        bytes <= FILE_BYTES_MAX,
        "{}",
        unreadable("too long".to_owned())
    );
    let text = fs::read_to_string(file).map_err(|error| unreadable(error.to_string()))?;
    text.parse().map_err(|error: toml::de::Error| {
        let start = error.span().map_or(0, |span| span.start);
        let line = text[..start].lines().count().max(1);
        anyhow!("{shown}, line {line}: {}", one_line(error.message()))
    })
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(flags: SettingsArguments, variables: &[(&str, &str)]) -> Result<Config> {
        let variables = variables
            .iter()
            .map(|(name, text)| (OsString::from(name), OsString::from(text)));
        Config::load_with(&flags, variables)
    }

    fn set(pairs: &[&str]) -> SettingsArguments {
        SettingsArguments {
            set: pairs.iter().map(|pair| (*pair).to_owned()).collect(),
            ..SettingsArguments::default()
        }
    }

    #[test]
    fn flags_stand_above_variables_and_these_above_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("caravan.toml");
        let text = "shards = 2\nlisten = \"127.0.0.1:1\"\n[http]\nslow_ms = 1\nheaders_max = 99\n";
        fs::write(&file, text).unwrap();
        let variables = [
            ("CARAVAN_CONFIG", file.to_str().unwrap()),
            ("CARAVAN_LISTEN", "127.0.0.1:2"),
            ("CARAVAN_HTTP_SLOW_MS", "2"),
            ("CARAVAN_TESTBED_DIR", "elsewhere"),
            ("PATH", "/bin"),
        ];
        let config = load(set(&["http.slow_ms=3"]), &variables).unwrap();
        assert_eq!(config.shards, Some(2));
        assert_eq!(config.listen.port(), 2);
        assert_eq!((config.http.slow_ms, config.http.headers_max), (3, 99));
        assert_eq!(config.router, Limits::default());
    }

    #[test]
    fn what_is_printed_can_be_read_back() {
        let config = load(set(&["shards=3", "shop.session_lifetime_s=60"]), &[]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("caravan.toml");
        fs::write(&file, config.text()).unwrap();
        let flags = SettingsArguments {
            config: Some(file),
            ..SettingsArguments::default()
        };
        assert_eq!(load(flags, &[]).unwrap(), config);
    }

    #[test]
    fn a_wrong_setting_is_named_with_its_origin_and_the_remedy() {
        fn check(flags: SettingsArguments, variables: &[(&str, &str)], parts: &[&str]) {
            let refusal = load(flags, variables).unwrap_err();
            let refusal = format!("{refusal:#}");
            for part in parts {
                assert!(refusal.contains(part), "{refusal}");
            }
            assert!(!refusal.contains('\n'), "{refusal}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("caravan.toml");
        let with_file = |text: &str| {
            fs::write(&file, text).unwrap();
            SettingsArguments {
                config: Some(file.clone()),
                ..SettingsArguments::default()
            }
        };
        let none = SettingsArguments::default;
        check(
            with_file("[http]\nslow = 1"),
            &[],
            &["caravan.toml", "\"http.slow\"", "http.slow_ms"],
        );
        check(with_file("lisen = 1"), &[], &["\"lisen\"", "listen"]);
        check(
            with_file("[shop]\nsession_lifetime_s = 0"),
            &[],
            &["caravan.toml", "1 to"],
        );
        check(with_file("data = "), &[], &["caravan.toml, line 1"]);
        check(
            none(),
            &[("CARAVAN_LISEN", "x")],
            &["CARAVAN_LISEN", "CARAVAN_LISTEN"],
        );
        check(
            none(),
            &[("CARAVAN_HTTP_SLOW", "1")],
            &["CARAVAN_HTTP_SLOW_MS"],
        );
        check(
            none(),
            &[("CARAVAN_HTTP_SLOW_MS", "soon")],
            &["CARAVAN_HTTP_SLOW_MS", "soon", "slow_ms"],
        );
        check(
            set(&["http.slow_ms=0"]),
            &[],
            &["http.slow_ms is 0", "choose 1 to"],
        );
        check(
            set(&["router.hold_ms_max=0"]),
            &[],
            &["router.hold_ms_max is 0"],
        );
        check(
            set(&["moves.take_over_ms=999"]),
            &[],
            &["moves.take_over_ms is 999", "choose 1000 to"],
        );
        check(
            set(&["upkeep.marks_kept_s=1"]),
            &[],
            &["upkeep.marks_kept_s is 1"],
        );
        check(set(&["shards=17"]), &[], &["shards is 17", "1 to 16"]);
        check(set(&["listen=nowhere"]), &[], &["--set listen", "address"]);
        check(set(&["listen"]), &[], &["KEY=VALUE"]);
    }
}
