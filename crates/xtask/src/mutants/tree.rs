//! The copy of the workspace that mutations are applied to.
//!
//! Cargo rebuilds what is newer than its last build. So a file that did not change is left alone, and one
//! that is put back after a mutation gets the time of now: with its old time cargo would keep the mutated build.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::mutation::Mutation;
use crate::workspace::Workspace;

#[derive(Debug)]
pub struct Tree {
    pub root: PathBuf,
}

/// A file of the copy while it is mutated. A run that dies here leaves it so; the next refresh mends it.
#[derive(Debug)]
pub struct Mutated {
    path: PathBuf,
    original: String,
}

impl Tree {
    /// Makes the copy equal to the workspace, touching only what differs.
    pub fn refresh(workspace: &Workspace, root: &Path) -> anyhow::Result<Self> {
        let wanted = sources(&workspace.root)?;
        fs::create_dir_all(root).with_context(|| format!("cannot make {}", root.display()))?;
        remove_unwanted(root, Path::new(""), &wanted)?;
        for file in &wanted {
            copy_if_different(&workspace.root.join(file), &root.join(file))
                .with_context(|| format!("cannot copy {} to {}", file.display(), root.display()))?;
        }
        Ok(Self {
            root: root.to_path_buf(),
        })
    }

    pub fn mutate(&self, mutation: &Mutation) -> anyhow::Result<Mutated> {
        let path = self.root.join(&mutation.file);
        let original =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let text = mutation.applied_to(&original)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Mutated { path, original })
    }
}

impl Mutated {
    pub fn revert(self) -> anyhow::Result<()> {
        fs::write(&self.path, self.original)
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// What git knows or would add: build products and local files stay out.
fn sources(workspace_root: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let output = Command::new("git")
        .current_dir(workspace_root)
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .output()
        .context("git does not start; is it installed?")?;
    if !output.status.success() {
        bail!(
            "git ls-files fails: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let listed = String::from_utf8(output.stdout).context("a file name is not UTF-8; rename it")?;
    let files = listed
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from);
    // A file removed by hand is still listed until the removal is committed.
    Ok(files
        .filter(|file| workspace_root.join(file).is_file())
        .collect())
}

fn remove_unwanted(root: &Path, inside: &Path, wanted: &BTreeSet<PathBuf>) -> anyhow::Result<()> {
    let folder = root.join(inside);
    for entry in
        fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let entry = entry?;
        let file = inside.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            if wanted.contains(&file) || !wanted.iter().any(|wanted| wanted.starts_with(&file)) {
                fs::remove_dir_all(entry.path())
                    .with_context(|| format!("cannot remove {}", entry.path().display()))?;
            } else {
                remove_unwanted(root, &file, wanted)?;
            }
        } else if !wanted.contains(&file) {
            fs::remove_file(entry.path())
                .with_context(|| format!("cannot remove {}", entry.path().display()))?;
        }
    }
    Ok(())
}

fn copy_if_different(from: &Path, to: &Path) -> std::io::Result<()> {
    if to.is_file() && fs::read(from)? == fs::read(to)? {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(root: &Path, arguments: &[&str]) {
        let status = Command::new("git")
            .current_dir(root)
            .args(arguments)
            .status()
            .unwrap();
        assert!(status.success());
    }

    #[test]
    fn the_copy_follows_the_workspace_and_leaves_unchanged_files_their_time() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("workspace");
        fs::create_dir_all(root.join("src/deep")).unwrap();
        git(&root, &["init", "--quiet"]);
        for (file, text) in [
            (".gitignore", "/target\n"),
            ("src/lib.rs", "one"),
            ("src/main.rs", "two"),
            ("src/deep/gone.rs", "three"),
        ] {
            fs::write(root.join(file), text).unwrap();
        }
        git(&root, &["add", "."]);
        fs::create_dir_all(root.join("target")).unwrap();
        fs::write(root.join("target/junk"), "junk").unwrap();
        let workspace = Workspace {
            root: root.clone(),
            target: root.join("target"),
        };
        let copy = home.path().join("tree");
        Tree::refresh(&workspace, &copy).unwrap();
        assert!(copy.join("src/deep/gone.rs").is_file() && !copy.join("target").exists());

        let time = |file: &str| fs::metadata(copy.join(file)).unwrap().modified().unwrap();
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        for file in ["src/lib.rs", "src/main.rs"] {
            fs::File::options()
                .write(true)
                .open(copy.join(file))
                .unwrap()
                .set_modified(long_ago)
                .unwrap();
        }
        fs::write(copy.join("src/stray.rs"), "left by a mutation").unwrap();
        fs::write(root.join("src/main.rs"), "two, changed").unwrap();
        fs::write(root.join("src/new.rs"), "not yet added").unwrap();
        fs::remove_file(root.join("src/deep/gone.rs")).unwrap();
        Tree::refresh(&workspace, &copy).unwrap();

        assert_eq!(time("src/lib.rs"), long_ago);
        assert!(time("src/main.rs") > long_ago);
        assert_eq!(
            fs::read_to_string(copy.join("src/main.rs")).unwrap(),
            "two, changed"
        );
        assert_eq!(
            fs::read_to_string(copy.join("src/new.rs")).unwrap(),
            "not yet added"
        );
        assert!(!copy.join("src/stray.rs").exists() && !copy.join("src/deep").exists());
    }
}
