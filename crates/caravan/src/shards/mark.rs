//! The mark of a data directory: a file with a random number, made once.
//!
//! Where map and leases stand on servers, several processes may serve, and each may have a directory of its own. A
//! shard in a folder is then called by its directory's mark as well (`shard-1-1c9a40e7`): processes with two
//! directories never mean two places by one name (W44), and one with the wrong directory lacks what the map names.
//! Where the map stands in the directory itself, its lock lets one process in, and the names are plain.

use std::fmt;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Result, anyhow, ensure};
use engine_api::World;

pub const FILE: &str = "mark";
const NEW_FILE: &str = "mark.new";
/// Hexadecimal digits.
const DIGITS: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark(String);

impl Mark {
    pub fn read(directory: &Path) -> Result<Option<Mark>> {
        let path = directory.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(anyhow!("{} cannot be read: {error}", path.display())),
        };
        let digits = text.trim_end();
        let plain = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        ensure!(
            digits.len() == DIGITS && digits.bytes().all(plain),
            "{} is no mark of a data directory: restore it from a copy",
            path.display()
        );
        Ok(Some(Mark(digits.to_owned())))
    }

    /// Whoever gets the directory's lock afterwards looks whether it is still this one.
    pub fn read_or_make(directory: &Path, world: &dyn World) -> Result<Mark> {
        if let Some(mark) = Mark::read(directory)? {
            return Ok(mark);
        }
        let mark = format!("{:0DIGITS$x}", world.random() as u32);
        let (new, path) = (directory.join(NEW_FILE), directory.join(FILE));
        let put = || {
            fs::create_dir_all(directory)?;
            let mut file = File::create(&new)?;
            writeln!(file, "{mark}")?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(directory)?.sync_all()
        };
        put().map_err(|error| anyhow!("{} cannot be written: {error}", path.display()))?;
        Ok(Mark(mark))
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use engine_api::RealWorld;

    use super::*;

    #[test]
    fn a_directory_has_one_mark_and_another_one_has_another() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("a"), folder.path().join("b"));
        let world = RealWorld::new();
        assert_eq!(Mark::read(&one).unwrap(), None);
        let mark = Mark::read_or_make(&one, &world).unwrap();
        assert_eq!(Mark::read_or_make(&one, &world).unwrap(), mark);
        assert_eq!(Mark::read(&one).unwrap().as_ref(), Some(&mark));
        assert_ne!(Mark::read_or_make(&other, &world).unwrap(), mark);
        fs::write(one.join(FILE), "").unwrap();
        let refusal = Mark::read(&one).unwrap_err().to_string();
        assert!(refusal.contains("restore it from a copy"), "{refusal}");
    }
}
