//! One mutation: a small file in `mutants/` that takes a rule out of the product. `mutants/README.md` has
//! the format.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;

use super::check::Check;
use crate::verdict::BadInput;

/// How many files `mutants/` may hold.
const MUTATIONS_MAX: usize = 1_000;

#[derive(Debug, Clone)]
pub struct Mutation {
    pub name: String,
    pub rule: String,
    /// The file it changes, from the root of the workspace.
    pub file: PathBuf,
    pub breaks: String,
    pub check: Check,
    /// A check that runs out of time counts as caught.
    pub may_hang: bool,
    find: String,
    replace: String,
    /// Why it no longer fits the sources, if so.
    stale: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    rule: String,
    file: PathBuf,
    find: String,
    replace: String,
    breaks: String,
    #[serde(default, rename = "command")]
    check: Check,
    #[serde(default)]
    may_hang: bool,
}

/// All mutations of the workspace, by name.
pub fn load_all(workspace_root: &Path) -> anyhow::Result<Vec<Mutation>> {
    let folder = workspace_root.join("mutants");
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut mutations = Vec::new();
    for entry in
        fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            mutations.push(load(workspace_root, &path)?);
        }
    }
    if mutations.len() > MUTATIONS_MAX {
        return Err(BadInput(format!("mutants/ holds more than {MUTATIONS_MAX} files")).into());
    }
    mutations.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(mutations)
}

/// A mutation that no longer fits would quietly test nothing.
pub fn refuse_stale(mutations: &[Mutation]) -> Result<(), BadInput> {
    let stale: Vec<_> = mutations
        .iter()
        .filter_map(|mutation| {
            mutation
                .stale
                .as_ref()
                .map(|why| format!("mutants/{}.toml is stale: {why}", mutation.name))
        })
        .collect();
    if stale.is_empty() {
        Ok(())
    } else {
        Err(BadInput(stale.join("; ")))
    }
}

impl Mutation {
    /// The text of its file with the rule taken out.
    pub fn applied_to(&self, text: &str) -> Result<String, BadInput> {
        match occurrences(text, &self.find) {
            1 => Ok(text.replacen(&self.find, &self.replace, 1)),
            count => Err(BadInput(format!(
                "mutants/{}.toml is stale: {}",
                self.name,
                misfit(&self.file, count)
            ))),
        }
    }
}

fn load(workspace_root: &Path, path: &Path) -> anyhow::Result<Mutation> {
    let name = path
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default();
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let written: Written = toml::from_str(&text)
        .map_err(|error| BadInput(format!("mutants/{name}.toml: {}", one_line(&error))))?;
    if let Some(why) = unfit(&written) {
        return Err(BadInput(format!("mutants/{name}.toml: {why}")).into());
    }
    let stale = match fs::read_to_string(workspace_root.join(&written.file)) {
        Err(error) => Some(format!(
            "{} cannot be read: {error}",
            written.file.display()
        )),
        Ok(source) => match occurrences(&source, &written.find) {
            1 => None,
            count => Some(misfit(&written.file, count)),
        },
    };
    Ok(Mutation {
        name,
        rule: written.rule,
        file: written.file,
        breaks: written.breaks,
        check: written.check,
        may_hang: written.may_hang,
        find: written.find,
        replace: written.replace,
        stale,
    })
}

fn unfit(written: &Written) -> Option<&'static str> {
    let inside = written
        .file
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if !inside {
        return Some("`file` must lead from the root of the workspace into it");
    }
    if written.find.trim().is_empty() {
        return Some("`find` is empty; give the text to replace");
    }
    if written.find == written.replace {
        return Some("`replace` equals `find`; give a change");
    }
    if written.rule.trim().is_empty() || written.breaks.trim().is_empty() {
        return Some("`rule` and `breaks` must say something");
    }
    written.check.unfit()
}

/// Also counts occurrences that overlap, since each could be the one meant.
fn occurrences(text: &str, find: &str) -> usize {
    text.char_indices()
        .filter(|(at, _)| text[*at..].starts_with(find))
        .count()
}

fn misfit(file: &Path, count: usize) -> String {
    format!(
        "`find` occurs {count} times in {}, not once; fit it to the code as it is now",
        file.display()
    )
}

fn one_line(error: &toml::de::Error) -> String {
    error.message().replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "fn newest(a: u64, b: u64) -> u64 {\n    a.max(b)\n}\nfn other() {}\n";

    fn check(written: &str) -> anyhow::Result<Vec<Mutation>> {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("mutants")).unwrap();
        fs::write(root.path().join("lib.rs"), SOURCE).unwrap();
        fs::write(root.path().join("mutants/README.md"), "not a mutation").unwrap();
        fs::write(root.path().join("mutants/newest.toml"), written).unwrap();
        load_all(root.path())
    }

    fn written(file: &str, find: &str, more: &str) -> String {
        format!(
            "rule = \"W1\"\nfile = \"{file}\"\nfind = '''{find}'''\nreplace = '''a'''\nbreaks = \"it\"\n{more}"
        )
    }

    #[test]
    fn a_mutation_replaces_its_one_place_and_is_judged_by_the_simulation_unless_it_says_otherwise()
    {
        let mutations = check(&written("lib.rs", "a.max(b)", "")).unwrap();
        refuse_stale(&mutations).unwrap();
        assert_eq!(mutations[0].name, "newest");
        assert_eq!(mutations[0].check, Check::default());
        assert!(
            mutations[0]
                .applied_to(SOURCE)
                .unwrap()
                .contains("{\n    a\n}")
        );

        let by_test = check(&written(
            "lib.rs",
            "a.max(b)",
            "command = { test = \"model\", filter = \"merge\" }",
        ));
        assert_eq!(
            by_test.unwrap()[0].check.to_string(),
            "test `merge` of model"
        );
    }

    #[test]
    fn a_mutation_that_fits_nowhere_or_twice_or_no_file_is_stale_and_named() {
        for (file, find, why) in [
            ("lib.rs", "a.min(b)", "occurs 0 times"),
            ("lib.rs", "fn ", "occurs 2 times"),
            ("gone.rs", "a.max(b)", "cannot be read"),
        ] {
            let mutations = check(&written(file, find, "")).unwrap();
            let error = refuse_stale(&mutations).unwrap_err().to_string();
            assert!(
                error.starts_with("mutants/newest.toml is stale: "),
                "{error}"
            );
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_badly_written_mutation_is_bad_input_that_names_the_file() {
        for (text, why) in [
            (written("../lib.rs", "a.max(b)", ""), "`file` must lead"),
            (written("/lib.rs", "a.max(b)", ""), "`file` must lead"),
            (written("lib.rs", " ", ""), "`find` is empty"),
            (written("lib.rs", "a", ""), "`replace` equals"),
            (written("lib.rs", "a.max(b)", "may_hnag = true"), "may_hnag"),
            (
                written("lib.rs", "a.max(b)", "command = \"prayer\""),
                "command is \"simulation\" or",
            ),
            (
                written(
                    "lib.rs",
                    "a.max(b)",
                    "command = { test = \"\", filter = \"x\" }",
                ),
                "`test` and `filter`",
            ),
            ("rule = 1".to_owned(), "invalid type"),
        ] {
            let error = check(&text).unwrap_err();
            assert!(error.is::<BadInput>(), "{error}");
            let told = error.to_string();
            assert!(
                told.starts_with("mutants/newest.toml: ") && told.contains(why),
                "{told}"
            );
        }
    }
}
