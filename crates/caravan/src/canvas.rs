//! A picture on a terminal that is drawn anew in the same place.

use std::io::{self, Write};

/// Lines that are too wide are cut, not broken: otherwise nobody knows how many there are.
const CUT: &str = "\x1b[?7l";
const BREAK_AGAIN: &str = "\x1b[?7h";

#[derive(Debug, Default)]
pub struct Canvas {
    /// Lines that stand on the terminal.
    drawn: usize,
}

impl Canvas {
    /// Takes the picture away, so that something else can be written in its place.
    pub fn wipe(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.drawn > 0 {
            // Up to where it began, and everything below goes.
            write!(out, "\x1b[{}A\x1b[J", self.drawn)?;
            self.drawn = 0;
        }
        Ok(())
    }

    pub fn draw(&mut self, picture: &str, out: &mut dyn Write) -> io::Result<()> {
        self.wipe(out)?;
        write!(out, "{CUT}{picture}{BREAK_AGAIN}")?;
        self.drawn = picture.lines().count();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_takes_the_place_of_the_one_before() {
        let (mut canvas, mut out) = (Canvas::default(), Vec::new());
        canvas.draw("a\nb\n", &mut out).unwrap();
        canvas.draw("c\n", &mut out).unwrap();
        canvas.wipe(&mut out).unwrap();
        canvas.wipe(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected =
            format!("{CUT}a\nb\n{BREAK_AGAIN}\x1b[2A\x1b[J{CUT}c\n{BREAK_AGAIN}\x1b[1A\x1b[J");
        assert_eq!(text, expected);
    }
}
