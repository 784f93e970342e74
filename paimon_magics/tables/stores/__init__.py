"""Where the files of tables lie: local disks, S3, HDFS; what each can do in one step."""
